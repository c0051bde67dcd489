"""The inputs of a call before the one at which a graph fails: what its code was compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from minifier.tensors import alone, storage_key
from minifier.torch_private import size_at, symbol_of

__all__ = ["earlier_inputs", "share_memory"]


def share_memory(inputs: Sequence[Any]) -> bool:
    """Whether two of the inputs are tensors of one storage."""
    keys = [storage_key(value) for value in inputs if isinstance(value, torch.Tensor)]
    known = [key for key in keys if key is not None]
    return len(set(known)) < len(known)


def earlier_inputs(module: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Inputs that Dynamo takes the same code for: at other sizes where some are symbolic, else sharing no memory."""
    return _at_other_sizes(module, inputs) or [_apart(value) for value in inputs]


def _apart(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    copied = alone(value)
    with torch.no_grad():
        return copied.fill_(1)


def _at_other_sizes(module: fx.GraphModule, inputs: Sequence[Any]) -> list[Any] | None:
    """Ones, and numbers, for inputs whose every symbolic size is one larger; None where none is symbolic.

    Which sizes are, the graph's placeholders say: of a part of a graph as well as of the whole.
    """
    described = [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]
    larger: dict[Any, int] = {}
    for value, meta in zip(inputs, described, strict=True):
        for size, symbolic in zip(_sizes(value), _sizes(meta), strict=False):
            symbol = symbol_of(symbolic)
            if symbol is not None:
                larger[symbol] = size + 1
    return [_at(v, meta, larger) for v, meta in zip(inputs, described, strict=True)] if larger else None


def _sizes(value: Any) -> tuple[Any, ...]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)


def _at(value: Any, meta: Any, larger: dict[Any, int]) -> Any:
    if not isinstance(value, torch.Tensor):
        return size_at(meta, larger, value)
    if not isinstance(meta, torch.Tensor) or meta.dim() != value.dim():
        return value
    shape = [size_at(symbolic, larger, size) for symbolic, size in zip(meta.shape, value.shape, strict=True)]
    return torch.ones(shape, dtype=value.dtype, device=value.device, requires_grad=value.requires_grad)
