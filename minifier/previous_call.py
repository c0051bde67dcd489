"""Inputs for a call before the failing one: the call for which the code was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from minifier.tensors import compact_copy, storage_key
from minifier.torch_private import substitute_symbols, symbol_of


def share_storage(inputs: Sequence[Any]) -> bool:
    """Whether two of the inputs are tensors on one storage."""
    keys = [storage_key(value) for value in inputs if isinstance(value, torch.Tensor)]
    known = [key for key in keys if key is not None]
    return len(set(known)) < len(known)


def previous_inputs(module: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Inputs for which Dynamo uses the same code: with other sizes if some are symbolic, otherwise without aliasing."""
    return _at_other_sizes(module, inputs) or [_unaliased(value) for value in inputs]


def _unaliased(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    copied = compact_copy(value)
    with torch.no_grad():
        return copied.fill_(1)


def _at_other_sizes(module: fx.GraphModule, inputs: Sequence[Any]) -> list[Any] | None:
    """Tensors of ones, and numbers, with every symbolic size one larger. None if no size is symbolic.

    The metadata of the placeholders says which sizes are symbolic.
    """
    described = [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]
    larger: dict[Any, int] = {}
    for value, meta in zip(inputs, described, strict=True):
        for size, symbolic in zip(_sizes(value), _sizes(meta), strict=False):
            symbol = symbol_of(symbolic)
            if symbol is not None:
                larger[symbol] = size + 1
    return [_resized(v, meta, larger) for v, meta in zip(inputs, described, strict=True)] if larger else None


def _sizes(value: Any) -> tuple[Any, ...]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)


def _resized(value: Any, meta: Any, larger: dict[Any, int]) -> Any:
    if not isinstance(value, torch.Tensor):
        return substitute_symbols(meta, larger, value)
    if not isinstance(meta, torch.Tensor) or meta.dim() != value.dim():
        return value
    shape = [substitute_symbols(symbolic, larger, size) for symbolic, size in zip(meta.shape, value.shape, strict=True)]
    return torch.ones(shape, dtype=value.dtype, device=value.device, requires_grad=value.requires_grad)
