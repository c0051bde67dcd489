"""Plainer inputs: float32, contiguous, on their own, without gradients, and with values that can be written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from minifier.graphs import Case
from minifier.tensors import alone, storage_key

__all__ = [
    "KINDS",
    "contiguous",
    "fillable",
    "filled",
    "in_float32",
    "made",
    "plain_values",
    "unshared",
    "without_grad",
]

KINDS = ("zeros", "ones", "arange", "randn")
# What inputs that are written as torch.randn are drawn from, in the order of the inputs.
SEED = 0


def unshared(case: Case) -> Iterator[Case]:
    """Each input in a storage of its own."""
    keys = [storage_key(v) for v in case.inputs if isinstance(v, torch.Tensor)]
    known = [key for key in keys if key is not None]
    if len(set(known)) < len(known):
        yield Case(case.module, tuple(alone(v) if isinstance(v, torch.Tensor) else v for v in case.inputs))


def in_float32(case: Case) -> Iterator[Case]:
    """Floating-point inputs in the usual precision: all, then one at a time."""
    yield from _changed(case, lambda v: v.is_floating_point() and v.dtype is not torch.float32, _float32)


def contiguous(case: Case) -> Iterator[Case]:
    """Inputs with the usual strides: all, then one at a time."""
    yield from _changed(case, lambda v: not v.is_contiguous(), _contiguous)


def without_grad(case: Case) -> Iterator[Case]:
    """Inputs that need no gradient: all, then one at a time."""
    yield from _changed(case, lambda v: v.requires_grad, lambda v: v.detach().clone())


def plain_values(case: Case) -> Iterator[Case]:
    """All inputs filled in one way, in the order of `KINDS`."""
    places = fillable(case)
    for kind in KINDS:
        if places:
            yield filled(case, dict.fromkeys(places, kind))


def filled(case: Case, kinds: dict[int, str]) -> Case:
    """Some inputs filled in a way of `KINDS`; the random ones are drawn in order from one seed."""
    values = list(case.inputs)
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        for place, kind in sorted(kinds.items()):
            values[place] = _refilled(values[place], made(kind, values[place]))
    return Case(case.module, tuple(values))


def made(kind: str, like: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of the shape, dtype and device of another, filled in a way of `KINDS`."""
    shape, dtype = tuple(like.shape), like.dtype
    if kind == "zeros":
        return torch.zeros(shape, dtype=dtype, device=like.device)
    if kind == "ones":
        return torch.ones(shape, dtype=dtype, device=like.device)
    if kind == "arange":
        return torch.arange(like.numel()).reshape(shape).to(like.device, dtype)
    return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(like.device, dtype)


def _refilled(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous():
        result = values
    else:
        result = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        flat = tuple(slice(None) if stride else slice(1) for stride in tensor.stride())
        result[flat].copy_(values[flat])
    return result.requires_grad_(tensor.requires_grad)


def fillable(case: Case) -> list[int]:
    """Inputs on their own: filling one of two that share a storage would fill both."""
    keys = [storage_key(v) if isinstance(v, torch.Tensor) else None for v in case.inputs]
    return [
        i for i, v in enumerate(case.inputs) if isinstance(v, torch.Tensor) and v.numel() and keys.count(keys[i]) == 1
    ]


def _changed(
    case: Case, applies: Callable[[torch.Tensor], bool], change: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[Case]:
    places = [i for i, v in enumerate(case.inputs) if isinstance(v, torch.Tensor) and applies(v)]
    choices: Sequence[list[int]] = [places, *([p] for p in places)] if len(places) > 1 else [places]
    for chosen in choices:
        if chosen:
            yield Case(case.module, tuple(_at(change, v, i in chosen) for i, v in enumerate(case.inputs)))


def _at(change: Callable[[torch.Tensor], torch.Tensor], value: Any, here: bool) -> Any:
    return change(value) if here else value


def _float32(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to(torch.float32).requires_grad_(value.requires_grad)


def _contiguous(value: torch.Tensor) -> torch.Tensor:
    return value.detach().contiguous().clone().requires_grad_(value.requires_grad)
