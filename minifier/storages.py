"""Tensors that share a storage, taken as one: the piece that they cover, and their places on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from minifier.tensors import onto, storage_key

__all__ = ["hull", "is_whole", "placed", "regridded", "shared", "sharing"]

Shape = tuple[int, ...]


def sharing(inputs: Sequence[Any]) -> list[list[int]]:
    """The inputs of each storage that several look at, in the order of the first of them."""
    groups: dict[int, list[int]] = {}
    for place, value in enumerate(inputs):
        key = storage_key(value) if isinstance(value, torch.Tensor) else None
        if key is not None:
            groups.setdefault(key, []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def shared(inputs: Sequence[Any]) -> set[int]:
    """Every input that shares its storage with another."""
    return {place for group in sharing(inputs) for place in group}


def hull(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, int] | None:
    """The piece of storage that tensors of one dtype cover, and where it begins; None for several dtypes."""
    plain = [tensor.detach() for tensor in tensors]
    if len({tensor.dtype for tensor in plain}) > 1:
        return None
    start = min(tensor.storage_offset() for tensor in plain)
    length = max(_end(tensor) for tensor in plain) - start
    return plain[0].as_strided((length,), (1,), start), start


def placed(flat: torch.Tensor, start: int, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same views on another storage, in which what was at ``start`` is the first element."""
    return _laid(
        flat, [_View(tuple(t.shape), t.stride(), t.storage_offset() - start, t.requires_grad) for t in tensors]
    )


def is_whole(tensor: torch.Tensor, length: int) -> bool:
    """Whether all others of a storage can be views of this one: it covers it, and is no leaf of autograd."""
    return tensor.is_contiguous() and tensor.numel() == length and tensor.dim() > 0 and not tensor.requires_grad


def regridded(tensors: Sequence[torch.Tensor], shapes: Sequence[Shape], furthest: int) -> list[torch.Tensor] | None:
    """The tensors with smaller shapes on a smaller storage, none beginning later than at ``furthest`` on any axis.

    What is looked at is a grid: its axes are the strides that occur, so that a slice stays a slice and a transpose a
    transpose. None where the dtypes differ or the strides are no grid.
    """
    if hull(tensors) is None or any(tensor.numel() == 0 for tensor in tensors):
        return None
    grid = _Grid.of(tensors)
    if grid is None:
        return None
    begins = [[min(begin, furthest) for begin in each] for each in grid.begins]
    extents = _extents(tensors, shapes, begins, grid.axes)
    smaller = grid.corner(tensors[0].detach(), extents)
    if smaller is None:
        return None
    steps = dict(zip(grid.axes, smaller.stride(), strict=True))
    members = zip(tensors, shapes, begins, strict=True)
    views = [_view(tensor, shape, begin, steps) for tensor, shape, begin in members]
    return _laid(smaller.view(-1), views)


@dataclass(frozen=True, slots=True)
class _View:
    shape: Shape
    stride: Shape
    offset: int
    grad: bool


def _laid(flat: torch.Tensor, views: Sequence[_View]) -> list[torch.Tensor]:
    """Views on a storage as a program makes them: where one of them is the whole, the others are views of it."""
    plain = [onto(flat.untyped_storage(), flat.as_strided(v.shape, v.stride, v.offset)) for v in views]
    whole = next((t for t, v in zip(plain, views, strict=True) if not v.grad and is_whole(t, len(flat))), None)
    base = flat if whole is None else whole
    with torch.enable_grad():  # else what is a view could not be written to
        seen: list[torch.Tensor] = [t if t is whole else base.as_strided(*_geometry(t)) for t in plain]
    return [tensor.requires_grad_(view.grad) for tensor, view in zip(seen, views, strict=True)]


def _geometry(tensor: torch.Tensor) -> tuple[Shape, Shape, int]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


@dataclass(frozen=True, slots=True)
class _Grid:
    """``axes``: strides, the largest first; ``begins``: where each tensor begins on each of them, from ``origin``."""

    origin: int
    axes: tuple[int, ...]
    begins: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> _Grid | None:
        """Counted from the beginning of the storage, else from the first element that is looked at."""
        starts = dict.fromkeys((0, min(tensor.storage_offset() for tensor in tensors)))
        return next((grid for start in starts if (grid := cls._from(start, tensors)) is not None), None)

    @classmethod
    def _from(cls, start: int, tensors: Sequence[torch.Tensor]) -> _Grid | None:
        """The axes of which each holds a whole number of the next: a stride within a smaller axis is steps along it."""
        axes = sorted({step for tensor in tensors for step in _steps(tensor)} | {1}, reverse=True)
        while True:
            begins = [_begin(tensor.storage_offset() - start, axes) for tensor in tensors]
            least = [min(each) for each in zip(*begins, strict=True)]
            begins = [[a - b for a, b in zip(each, least, strict=True)] for each in begins]
            reach = _extents(tensors, [tuple(t.shape) for t in tensors], begins, axes)
            crossed = [i for i in range(len(axes) - 1) if axes[i] < axes[i + 1] * reach[i + 1]]
            if not crossed:
                origin = start + sum(index * axis for index, axis in zip(least, axes, strict=True))
                return cls(origin, tuple(axes), tuple(map(tuple, begins)))
            if axes[crossed[-1]] % axes[crossed[-1] + 1]:
                return None
            del axes[crossed[-1]]

    def corner(self, tensor: torch.Tensor, extents: Sequence[int]) -> torch.Tensor | None:
        """The first values along each axis of the storage that a tensor lies on; None where it has not so many."""
        last = self.origin + sum((extent - 1) * axis for extent, axis in zip(extents, self.axes, strict=True))
        if last >= tensor.untyped_storage().nbytes() // tensor.element_size():
            return None
        found = tensor.as_strided(tuple(extents), self.axes, self.origin)
        return torch.empty(tuple(extents), dtype=tensor.dtype, device=tensor.device).copy_(found)


def _view(tensor: torch.Tensor, shape: Shape, begin: Sequence[int], steps: dict[int, int]) -> _View:
    """One of the tensors on the new grid. A dimension of one element has the stride that it would usually have."""
    strides = [0] * len(shape)
    for dim in reversed(range(len(shape))):
        old, usual = tensor.stride(dim), strides[dim + 1] * shape[dim + 1] if dim + 1 < len(shape) else 1
        axis, count = _along(old, steps)
        strides[dim] = steps[axis] * count if tensor.shape[dim] > 1 else (old and usual)
    offset = sum(index * step for index, step in zip(begin, steps.values(), strict=True))
    return _View(shape, tuple(strides), offset, tensor.requires_grad)


def _steps(tensor: torch.Tensor) -> Iterable[int]:
    return (step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1 and step)


def _along(stride: int, axes: Iterable[int]) -> tuple[int, int]:
    """A stride as an axis and how many steps along it."""
    axis = next(axis for axis in axes if stride % axis == 0)
    return axis, stride // axis


def _begin(offset: int, axes: Sequence[int]) -> list[int]:
    begin = []
    for axis in axes:
        begin.append(offset // axis)
        offset %= axis
    return begin


def _extents(
    tensors: Sequence[torch.Tensor], shapes: Sequence[Shape], begins: Sequence[Sequence[int]], axes: Sequence[int]
) -> list[int]:
    """How far the tensors reach on each axis, when they have these shapes."""
    reach = dict.fromkeys(axes, 1)
    for tensor, shape, begin in zip(tensors, shapes, begins, strict=True):
        end = dict(zip(axes, begin, strict=True))
        for size, old, step in zip(shape, tensor.shape, tensor.stride(), strict=True):
            if old > 1:
                axis, count = _along(step, axes)
                end[axis] += (size - 1) * count
        reach = {axis: max(reach[axis], end[axis] + 1) for axis in axes}
    return list(reach.values())


def _end(tensor: torch.Tensor) -> int:
    inside = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.storage_offset() + (inside + 1 if tensor.numel() else 0)
