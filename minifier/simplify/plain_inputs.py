"""Simplifies inputs: float32, contiguous, not aliased, without gradients, and with values of a factory call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from minifier.aliasing import aliased_groups, aliased_inputs, covering_storage, move_views
from minifier.graph_problem import Case
from minifier.simplify.simplifier import all_then_each
from minifier.tensors import compact_copy, span

# Ways to fill a tensor, the simplest first. Zeros are not first: fresh memory is often zero, so a wrong read would show
# in one process and not in the next. "full" has minus ones: where a failure needs numbers below zero, chance need not
# draw them.
FILLS = ("ones", "zeros", "arange", "full", "randn")
# The seed of inputs that are written as torch.randn. They are drawn in the order of the inputs.
SEED = 0


def without_aliasing(case: Case) -> Iterator[Case]:
    """Each input on its own storage."""
    if aliased_groups(case.inputs):
        yield Case(case.module, tuple(compact_copy(v) if isinstance(v, torch.Tensor) else v for v in case.inputs))


def in_float32(case: Case) -> Iterator[Case]:
    """Floating-point inputs as float32: all, then one at a time. Aliased inputs change together."""
    groups = aliased_groups(case.inputs)
    single = [[i] for i in range(len(case.inputs)) if i not in aliased_inputs(case.inputs)]
    units = [unit for unit in [*groups, *single] if all(_is_unusual_float(case.inputs[i]) for i in unit)]
    yield from (Case(case.module, _in_float32(case.inputs, chosen)) for chosen in all_then_each(units))


def _is_unusual_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float32


def _in_float32(inputs: Sequence[Any], units: Sequence[Sequence[int]]) -> tuple[Any, ...]:
    values = list(inputs)
    for unit in units:
        tensors = [values[i] for i in unit]
        covered = covering_storage(tensors) if len(unit) > 1 else None
        cast = move_views(covered[0].float(), covered[1], tensors) if covered else [_float32(t) for t in tensors]
        for i, tensor in zip(unit, cast, strict=True):
            values[i] = tensor
    return tuple(values)


def contiguous(case: Case) -> Iterator[Case]:
    """Contiguous inputs: all, then one at a time."""
    yield from _changed(case, lambda v: not v.is_contiguous(), _contiguous)


def without_grad(case: Case) -> Iterator[Case]:
    """Inputs without `requires_grad`: all, then one at a time."""
    yield from _changed(case, lambda v: v.requires_grad, lambda v: v.detach().clone())


def non_finite_first(case: Case) -> Iterator[Case]:
    """Inputs with their first NaN or infinity as the first element, which is the last one to go: all, then one at a
    time.
    """
    yield from _changed(case, lambda v: any(_place_of_non_finite(v)), _rolled)


def _place_of_non_finite(value: torch.Tensor) -> list[int]:
    """Where a plain tensor has its first NaN or infinity; empty if it has none."""
    if value.layout is not torch.strided or not value.is_contiguous() or value.dtype.is_complex:
        return []
    found: list[list[int]] = (~value.detach().isfinite()).nonzero()[:1].tolist()
    return found[0] if found else []


def _rolled(value: torch.Tensor) -> torch.Tensor:
    place = _place_of_non_finite(value)
    rolled = value.detach().roll([-at for at in place], list(range(value.dim())))
    return rolled.requires_grad_(value.requires_grad)


def fill_all_inputs(case: Case) -> Iterator[Case]:
    """All inputs filled in the same way, in the order of `FILLS`. Integers are not drawn: few that are drawn are plain,
    and each input may be plainer by itself.
    """
    places = fillable_inputs(case)
    drawn = all(case.inputs[i].is_floating_point() or case.inputs[i].is_complex() for i in places)
    for kind in FILLS if drawn else FILLS[:-1]:
        if places:
            yield fill_inputs(case, dict.fromkeys(places, kind))


def fill_inputs(case: Case, kinds: dict[int, str]) -> Case:
    """The case with some inputs filled. `kinds` maps positions to ways of `FILLS`.

    Random values are drawn from one seed, for shared storages first.
    """
    values = list(case.inputs)
    groups = {group[0]: group for group in aliased_groups(values)}
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        for place in sorted(kinds, key=lambda place: (place not in groups, place)):
            if place in groups:
                _refill_shared(values, groups[place], kinds[place])
            else:
                values[place] = _filled(kinds[place], values[place])
    return Case(case.module, tuple(values))


def _refill_shared(values: list[Any], group: Sequence[int], kind: str) -> None:
    tensors = [values[i] for i in group]
    covered = covering_storage(tensors)
    if covered is not None:
        flat, start = covered
        for i, tensor in zip(group, move_views(make_filled(kind, flat), start, tensors), strict=True):
            values[i] = tensor


def make_filled(fill: str, like: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor filled in a way of `FILLS`, with the shape, dtype and device of `like`."""
    shape, dtype = tuple(like.shape), like.dtype
    if fill == "zeros":
        return torch.zeros(shape, dtype=dtype, device=like.device)
    if fill == "ones":
        return torch.ones(shape, dtype=dtype, device=like.device)
    if fill == "arange":
        return torch.arange(like.numel()).reshape(shape).to(like.device, dtype)
    if fill == "full":
        return torch.full(shape, -1).to(like.device, dtype)
    return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(like.device, dtype)


def _filled(kind: str, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout whose storage is filled: what lies between the elements too, as that is written."""
    if tensor.is_contiguous():
        filled = make_filled(kind, tensor)
    else:
        flat = make_filled(kind, tensor.new_empty(span(tensor)))
        filled = flat.as_strided(tensor.shape, tensor.stride())
    return filled.requires_grad_(tensor.requires_grad)


def fillable_inputs(case: Case) -> list[int]:
    """The positions of inputs that can be filled. Of aliased inputs, the first one stands for all."""
    groups = aliased_groups(case.inputs)
    follow = {
        i for group in groups for i in (group[1:] if covering_storage([case.inputs[i] for i in group]) else group)
    }
    return [i for i, v in enumerate(case.inputs) if isinstance(v, torch.Tensor) and v.numel() and i not in follow]


def _changed(
    case: Case, applies: Callable[[torch.Tensor], bool], change: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[Case]:
    places = [i for i, v in enumerate(case.inputs) if isinstance(v, torch.Tensor) and applies(v)]
    for chosen in all_then_each(places):
        yield Case(case.module, tuple(_at(change, v, i in chosen) for i, v in enumerate(case.inputs)))


def _at(change: Callable[[torch.Tensor], torch.Tensor], value: Any, here: bool) -> Any:
    return change(value) if here else value


def _float32(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to(torch.float32).requires_grad_(value.requires_grad)


def _contiguous(value: torch.Tensor) -> torch.Tensor:
    return value.detach().contiguous().clone().requires_grad_(value.requires_grad)
