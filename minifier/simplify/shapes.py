"""Shrinks inputs: equal sizes change together, also where the graph contains them as numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import fx

from minifier.aliasing import aliased_groups, aliased_inputs, shrink_views
from minifier.graph_problem import Case, case_key, copy_case, operation_name
from minifier.tensors import leaves, map_leaves
from minifier.torch_private import is_zero_tensor, zero_tensor

# The sizes that a person would write. Larger sizes double, which finds a threshold (vector width, block) in few trials.
_FIRST_SIZES = (1, 2, 3)
_MANY_SIZES = 3  # from so many on, one trial for all of them that are left costs less than one for each
# Limits for the start of a view on each axis of a shared storage: next to the others, or where it was.
_MAX_VIEW_STARTS = (1, sys.maxsize)
_VIEWS = frozenset(
    {"view", "_unsafe_view", "reshape", "expand", "repeat", "unflatten"}
)  # operations with size arguments
# Operations that make a tensor of no other, with its sizes as arguments.
_FACTORIES = frozenset(("arange", "empty", "eye", "full", "ones", "rand", "randn", "zeros"))
_MAKING = _FACTORIES | {"new_empty", "new_full", "new_ones", "new_zeros"}


def shrink_all_sizes(case: Case) -> Iterator[Case]:
    """All sizes as 1; one of them as 1, the largest first, and with many the rest at once; all larger ones as 2, as 3.

    One goes first, since sizes that have become equal can no longer change separately.
    """
    known = sorted(_sizes(case), reverse=True)
    one = [dict.fromkeys(known, 1)]
    for place, size in enumerate(known):
        rest = known[place + 1 :]
        one += [{size: 1}, *([dict.fromkeys(rest, 1)] if len(rest) >= _MANY_SIZES else [])]
    more = [{size: target for size in known if size > target} for target in _FIRST_SIZES[1:]]
    for sizes in (*one, *more):
        if sizes:
            yield from _resized(case, sizes)


def shrink_one_size(case: Case) -> Iterator[Case]:
    """One size smaller, the largest first."""
    for size in sorted(_sizes(case), reverse=True):
        for target in _targets(size):
            yield from _resized(case, {size: target})


def shrink_one_axis(case: Case) -> Iterator[Case]:
    """One size smaller on one axis (counted from the last) of every input that has it there.

    On another axis the same number may be a different size, above all after sizes have become small.
    """
    tensors = {place: value for place, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
    for axis in range(1, 1 + max((value.dim() for value in tensors.values()), default=0)):
        for size in sorted({value.shape[-axis] for value in tensors.values() if value.dim() >= axis}, reverse=True):
            for target in _targets(size):
                shapes = {place: _on_axis(value.shape, axis, size, target) for place, value in tensors.items()}
                for inputs in _with_shapes(case.inputs, shapes):
                    yield Case(case.module, inputs)


def _on_axis(shape: Sequence[int], axis: int, size: int, target: int) -> tuple[int, ...]:
    changed = len(shape) >= axis and shape[-axis] == size
    return tuple(target if changed and i == len(shape) - axis else n for i, n in enumerate(shape))


def shrink_one_dimension(case: Case) -> Iterator[Case]:
    """One dimension of one input smaller, alone: sizes may be equal by chance."""
    for place, value in enumerate(case.inputs):
        if not isinstance(value, torch.Tensor):
            continue
        for dim, size in enumerate(value.shape):
            for target in _targets(size):
                shape = (*value.shape[:dim], target, *value.shape[dim + 1 :])
                for inputs in _with_shapes(case.inputs, {place: shape}):
                    yield Case(case.module, inputs)


def keep_last(case: Case) -> Iterator[Case]:
    """The last value alone, on one axis (counted from the last) of every input that has the size there.

    Shrinking keeps the first values, so that the last of them is one without which it passes: it may be the only one.
    """
    shared = aliased_inputs(case.inputs)
    plain = {
        place: value
        for place, value in enumerate(case.inputs)
        if isinstance(value, torch.Tensor)
        and place not in shared
        and value.is_contiguous()
        and not (value.is_conj() or is_zero_tensor(value))
    }
    for axis in range(1, 1 + max((value.dim() for value in plain.values()), default=0)):
        for size in sorted({value.shape[-axis] for value in plain.values() if value.dim() >= axis} - {0, 1}):
            chosen = {place for place, value in plain.items() if value.dim() >= axis and value.shape[-axis] == size}
            yield Case(case.module, tuple(_last(v, axis) if i in chosen else v for i, v in enumerate(case.inputs)))


def _last(value: torch.Tensor, axis: int) -> torch.Tensor:
    last = value.detach().narrow(-axis, value.shape[-axis] - 1, 1)
    return last.clone(memory_format=torch.contiguous_format).requires_grad_(value.requires_grad)


def _targets(size: int) -> list[int]:
    """Smaller sizes: the first ones, then the largest that is tried. If that passes, those between are its corners."""
    doubled = [1 << power for power in range(2, (size - 1).bit_length())]
    return [target for target in (*_FIRST_SIZES, *doubled[-1:], *doubled[:-1]) if target < size]


def is_corner(case: Case, whole: Case) -> bool:
    """Whether `case` has the graph of `whole`, and as inputs the first values of those in each dimension.

    If `whole` passes, so does its corner, as far as failures need inputs that are large enough.
    """
    pairs = list(zip(case.inputs, whole.inputs, strict=False))
    if len(case.inputs) != len(whole.inputs) or not any(_is_smaller(a, b) for a, b in pairs):
        return False
    corners = tuple(_corner(b, tuple(a.shape)) if _is_smaller(a, b) else b for a, b in pairs)
    return case_key(case) == case_key(Case(whole.module, corners))


def _is_smaller(one: Any, other: Any) -> bool:
    """Whether both are tensors, and the first is smaller in some dimension and larger in none."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or one.dim() != other.dim():
        return False
    fits = all(a <= b for a, b in zip(one.shape, other.shape, strict=True))
    return fits and one.shape != other.shape and other.layout is torch.strided


def _sizes(case: Case) -> set[int]:
    """The sizes of the inputs, and those that the graph has in views and for the tensors that it makes."""
    given = {size for value in case.inputs if isinstance(value, torch.Tensor) for size in value.shape}
    calls = [node for node in case.module.graph.nodes if node.op in ("call_function", "call_method")]
    views = [node for node in calls if operation_name(node) in _VIEWS]
    named = {leaf for node in views for leaf in leaves(node.args[1:]) if type(leaf) is int}
    named |= {n for node in calls if operation_name(node) in _MAKING for n in leaves(node.args) if type(n) is int}
    return {size for size in given | named if size > 1}


def _resized(case: Case, sizes: Mapping[int, int]) -> Iterator[Case]:
    """Variants with changed sizes: with and without a change of the numbers in the graph, and with fitting indices.

    Most of them do not run uncompiled, and so cost no trial.
    """
    shapes = {
        i: tuple(sizes.get(size, size) for size in v.shape)
        for i, v in enumerate(case.inputs)
        if isinstance(v, torch.Tensor)
    }
    numbers = tuple(sizes.get(v, v) if type(v) is int else v for v in case.inputs)
    renamed = _renamed(case, sizes)
    largest = min(sizes.values())
    smaller = list(_with_shapes(numbers, shapes))
    if renamed is not None and not smaller:  # no input has this size
        yield Case(renamed, numbers)
    for inputs in smaller:
        for module in (renamed, case.module) if renamed is not None else (case.module,):
            yield Case(module, inputs)
            fitting = tuple(_wrap_indices(v, largest) for v in inputs)
            if any(a is not b for a, b in zip(fitting, inputs, strict=True)):
                yield Case(module, fitting)


def _with_shapes(inputs: Sequence[Any], shapes: Mapping[int, tuple[int, ...]]) -> Iterator[tuple[Any, ...]]:
    """The inputs with changed shapes; aliased inputs stay aliased. Nothing if no shape changes.

    Aliased inputs come twice: moved next to each other, and at their old starts. They are left out if their storage is
    no grid.
    """
    wanted = {i: shape for i, shape in shapes.items() if shape != tuple(inputs[i].shape)}
    groups = [group for group in aliased_groups(inputs) if any(i in wanted for i in group)]
    inside = {i for group in groups for i in group}
    made = {i: _corner(inputs[i], shape) for i, shape in wanted.items() if i not in inside}
    seen: set[str] = set()
    for furthest in _MAX_VIEW_STARTS if groups else _MAX_VIEW_STARTS[-1:]:
        moved = {**made, **_shrink_aliased(inputs, groups, wanted, furthest)}
        places = str([(i, moved[i].storage_offset(), tuple(moved[i].shape)) for i in sorted(moved)])
        if moved and places not in seen:
            seen.add(places)
            yield tuple(moved.get(i, value) for i, value in enumerate(inputs))


def _shrink_aliased(
    inputs: Sequence[Any], groups: Sequence[Sequence[int]], shapes: Mapping[int, tuple[int, ...]], furthest: int
) -> dict[int, torch.Tensor]:
    """The aliased inputs on smaller storages, by position."""
    found: dict[int, torch.Tensor] = {}
    for group in groups:
        tensors = [inputs[i] for i in group]
        smaller = shrink_views(tensors, [shapes.get(i, tuple(inputs[i].shape)) for i in group], furthest)
        found.update(zip(group, smaller, strict=True) if smaller is not None else ())
    return found


def _corner(value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The first values in each dimension, in a new tensor with the same order of strides."""
    if is_zero_tensor(value):
        return zero_tensor(shape, value.dtype, value.device)
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


def _wrap_indices(value: Any, limit: int) -> Any:
    """Integer values below `limit`, so that indices fit a smaller tensor."""
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int32, torch.int64):
        return value
    return value if value.numel() == 0 or int(value.max()) < limit else value.remainder(limit)


def _renamed(case: Case, sizes: Mapping[int, int]) -> fx.GraphModule | None:
    """The graph with sizes, and products of up to three sizes, replaced in its arguments. None if it has none."""
    table = _products(_sizes(case), sizes)
    copied = copy_case(case).module
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

    inside = (node.op == "call_method" and node.target in _VIEWS) or operation_name(node) in _MAKING
    args = tuple(map_leaves(swap, a) if inside or isinstance(a, (tuple, list, slice)) else a for a in node.args)
    kwargs = {k: map_leaves(swap, v) if isinstance(v, (tuple, list)) else v for k, v in node.kwargs.items()}
    return args, kwargs


def _products(known: set[int], sizes: Mapping[int, int]) -> dict[int, int]:
    """The new value of each size and product of sizes. Single sizes come last and take precedence."""
    ordered = sorted(known)
    table: dict[int, int] = {}
    for count in (3, 2, 1):
        for factors in combinations([f for f in ordered for _ in range(count)], count):
            old = new = 1
            for factor in factors:
                old, new = old * factor, new * sizes.get(factor, factor)
            table[old] = new
    return table
