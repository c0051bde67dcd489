"""The part of a large product in float32 that is computed in float64 too.

A product in float64 takes twice the time of one in float32, and the conversion of its operands is not free: for a
transformer that would be more than the whole uncompiled call. The elements of a product are independent of each other
and rounded alike, so that some rows and columns show how far a product is off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

ROWS, COLUMNS = 64, 256  # rows of all matrices of a batch together, columns of each
_MIN_WORK = 1 << 24  # multiplications: a smaller product is computed as a whole
_PRODUCTS = {"linear": 0, "matmul": 0, "mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # where the left operand stands


@dataclass(frozen=True, slots=True)
class ProductSample:
    """Rows and columns by number. ``operands`` has the dimensions of each operand that are rows and columns."""

    index: tuple[torch.Tensor, torch.Tensor]
    operands: Mapping[Node, tuple[int | None, int | None]]

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the sample of a product, or of each product of a batch."""
        return self._selected(value, (-2, -1))

    def of_operand(self, node: Node, value: Any) -> Any:
        """Return what the sample is computed of. What is no operand stays."""
        return self._selected(value, self.operands[node]) if node in self.operands else value

    def _selected(self, value: torch.Tensor, dims: tuple[int | None, int | None]) -> torch.Tensor:
        for dim, index in zip(dims, self.index, strict=True):
            value = value if dim is None else value.index_select(dim, index)
        return value


def product_sample(node: Node, name: str, value: torch.Tensor, operands: Mapping[Node, Any]) -> ProductSample | None:
    """Return the sample of ``value`` to compute in float64, evenly spaced; None if the node is no large product.

    ``name`` is the operator's, ``operands`` has the values of what the node reads.
    """
    place = _PRODUCTS.get(name)
    if place is None or len(node.args) < place + 2:
        return None
    left, right = node.args[place : place + 2]
    read = [each for each in (*node.args, *node.kwargs.values()) if isinstance(each, Node)]
    if not isinstance(left, Node) or not isinstance(right, Node) or len(set(read)) < len(read):
        return None
    a, b = operands[left], operands[right]
    if a.dtype is not torch.float32 or min(a.dim(), b.dim()) < 2 or value.shape[-2:-1] != a.shape[-2:-1]:
        return None
    rows, columns = value.shape[-2:]
    count = math.ceil(ROWS * rows * a.shape[-1] / max(1, a.numel()))
    if value.numel() * a.shape[-1] < _MIN_WORK or 2 * count > rows:
        return None
    dims: dict[Node, tuple[int | None, int | None]] = {}
    for added in read:
        sizes = getattr(operands[added], "shape", ())
        dims[added] = -2 if sizes[-2:-1] == (rows,) else None, -1 if sizes[-1:] == (columns,) else None
    dims |= {left: (-2, None), right: (None, -2 if name == "linear" else -1)}
    return ProductSample((_index(rows, count, a), _index(columns, COLUMNS, a)), dims)


def _index(size: int, count: int, value: torch.Tensor) -> torch.Tensor:
    """Evenly spaced numbers of rows or columns, on the device of a tensor."""
    return torch.linspace(0, size - 1, min(size, count), dtype=torch.float64).round().long().to(value.device)
