"""Smaller inputs: each distinct size as one variable, also where the graph itself names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import torch
from torch import fx

from minifier.graphs import Case, own
from minifier.tensors import map_leaves, storage_key

__all__ = ["all_sizes", "one_dimension", "one_size"]

# 1, 2, 3 are what a person would write; beyond, doubling finds a threshold (a vector width, a block) in few trials.
_SMALL = (1, 2, 3)


def all_sizes(case: Case) -> Iterator[Case]:
    """Every size above it as 1, as 2, as 3: with luck the first trial is all there is to do."""
    for target in _SMALL:
        sizes = {size: target for size in _sizes(case) if size > target}
        if sizes:
            yield from _resized(case, sizes)


def one_size(case: Case) -> Iterator[Case]:
    """One size smaller, the largest first."""
    for size in sorted(_sizes(case), reverse=True):
        for target in _targets(size):
            yield from _resized(case, {size: target})


def one_dimension(case: Case) -> Iterator[Case]:
    """One dimension of one input smaller by itself: sizes that happened to be equal need not be."""
    shared = _shared(case)
    for place, value in enumerate(case.inputs):
        if place in shared or not isinstance(value, torch.Tensor):
            continue
        for dim, size in enumerate(value.shape):
            for target in _targets(size):
                corner = _corner(value, (*value.shape[:dim], target, *value.shape[dim + 1 :]))
                yield Case(case.module, (*case.inputs[:place], corner, *case.inputs[place + 1 :]))


def _targets(size: int) -> list[int]:
    doubled = [1 << power for power in range(2, size.bit_length())]
    return [target for target in (*_SMALL, *doubled) if target < size]


def _sizes(case: Case) -> set[int]:
    return {size for value in case.inputs if isinstance(value, torch.Tensor) for size in value.shape if size > 1}


def _resized(case: Case, sizes: Mapping[int, int]) -> Iterator[Case]:
    """With the graph's own mention of these sizes changed, then without; each with indices that fit, if need be.

    Most of these do not run uncompiled, and cost no trial.
    """
    shared = _shared(case)
    inputs = tuple(v if i in shared else _resized_input(v, sizes) for i, v in enumerate(case.inputs))
    if all(a is b for a, b in zip(inputs, case.inputs, strict=True)):
        return
    renamed = _renamed(case, sizes)
    largest = min(sizes.values())
    for module in (renamed, case.module) if renamed is not None else (case.module,):
        yield Case(module, inputs)
        fitting = tuple(_below(v, largest) for v in inputs)
        if any(a is not b for a, b in zip(fitting, inputs, strict=True)):
            yield Case(module, fitting)


def _resized_input(value: Any, sizes: Mapping[int, int]) -> Any:
    """The tensor with sizes changed; or a number that is one of the sizes."""
    if not isinstance(value, torch.Tensor):
        return sizes.get(value, value) if type(value) is int else value
    shape = tuple(sizes.get(size, size) for size in value.shape)
    return value if shape == tuple(value.shape) else _corner(value, shape)


def _corner(value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The first values in each dimension, with the dimensions in the same order of strides."""
    corner = value.detach()[tuple(slice(size) for size in shape)]
    strides = _strides(shape, value.stride())
    made = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
    flat = tuple(slice(None) if stride else slice(1) for stride in strides)
    made[flat].copy_(corner[flat])
    return made.requires_grad_(value.requires_grad)


def _strides(shape: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...]:
    strides = [0] * len(shape)
    length = 1
    for dim in sorted(range(len(shape)), key=lambda d: (old[d], -d)):
        if old[dim]:
            strides[dim] = length
            length *= shape[dim]
    return tuple(strides)


def _below(value: Any, limit: int) -> Any:
    """Indices into what has become smaller."""
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int32, torch.int64):
        return value
    return value if value.numel() == 0 or int(value.max()) < limit else value.remainder(limit)


def _renamed(case: Case, sizes: Mapping[int, int]) -> fx.GraphModule | None:
    """The graph with sizes, and products of two or three of them, replaced in lists and in method arguments."""
    table = _products(_sizes(case), sizes)
    copied = own(case).module
    changed = False
    for node in copied.graph.nodes:
        if node.op in ("call_function", "call_method"):
            args = _rename(node, table)
            changed = changed or args != (node.args, node.kwargs)
            node.args, node.kwargs = args
    if not changed:
        return None
    copied.recompile()
    return copied


def _rename(node: fx.Node, table: Mapping[int, int]) -> tuple[Any, Any]:
    def swap(leaf: Any) -> Any:
        return table.get(leaf, leaf) if type(leaf) is int else leaf

    inside = node.op == "call_method" and node.target in ("view", "reshape", "expand", "repeat", "unflatten")
    args = tuple(map_leaves(swap, a) if inside or isinstance(a, (tuple, list, slice)) else a for a in node.args)
    kwargs = {k: map_leaves(swap, v) if isinstance(v, (tuple, list)) else v for k, v in node.kwargs.items()}
    return args, kwargs


def _products(known: set[int], sizes: Mapping[int, int]) -> dict[int, int]:
    """What each size, or product of sizes, becomes. Single sizes come last, so that they win where both fit."""
    ordered = sorted(known)
    table: dict[int, int] = {}
    for count in (3, 2, 1):
        for factors in combinations([f for f in ordered for _ in range(count)], count):
            old = new = 1
            for factor in factors:
                old, new = old * factor, new * sizes.get(factor, factor)
            table[old] = new
    return table


def _shared(case: Case) -> set[int]:
    """Inputs that share a storage: they have to stay as they are to go on sharing it."""
    keys = [storage_key(v) if isinstance(v, torch.Tensor) else None for v in case.inputs]
    return {i for i, key in enumerate(keys) if key is not None and keys.count(key) > 1}
