"""The rows of a large product in float32 that are computed in float64 too.

A product in float64 takes twice the time of one in float32, and the conversion of its operands is not free: for a
transformer that would be more than the whole uncompiled call. The rows of a product are independent of each other and
rounded alike, so that a sample of them shows how far a product is off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

ROWS = 64  # of all matrices of a batch together
_MIN_WORK = 1 << 24  # multiplications: a smaller product is computed as a whole
_PRODUCTS = {"linear": 0, "matmul": 0, "mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # where the left operand stands


@dataclass(frozen=True, slots=True)
class ProductRows:
    """Rows by number, and the operands that have these rows."""

    index: torch.Tensor
    sources: frozenset[Node]

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the rows of a matrix, or of each matrix of a batch."""
        return value.index_select(-2, self.index)


def product_rows(node: Node, name: str, value: torch.Tensor, operands: Mapping[Node, Any]) -> ProductRows | None:
    """Return the rows of ``value`` to compute in float64, evenly spaced; None if the node is no large product.

    ``name`` is the operator's, ``operands`` has the values of what the node reads.
    """
    place = _PRODUCTS.get(name)
    if place is None or len(node.args) < place + 2:
        return None
    left, right = node.args[place], node.args[place + 1]
    if not isinstance(left, Node) or not isinstance(right, Node) or left is right:
        return None
    a, b = operands[left], operands[right]
    if a.dtype is not torch.float32 or min(a.dim(), b.dim()) < 2 or value.shape[-2:-1] != a.shape[-2:-1]:
        return None
    rows, work = a.shape[-2], value.numel() * a.shape[-1]
    count = math.ceil(ROWS * rows * a.shape[-1] / max(1, a.numel()))
    if work < _MIN_WORK or 2 * count > rows:
        return None
    added = node.args[0]
    is_matrix = place and isinstance(added, Node) and operands[added].shape[-2:-1] == a.shape[-2:-1]
    index = torch.linspace(0, rows - 1, count, dtype=torch.float64).round().long().to(a.device)
    return ProductRows(index, frozenset({left, added} if is_matrix else {left}))
