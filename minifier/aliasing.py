"""Aliased inputs: tensors that share a storage. Finds them, and moves or shrinks them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from minifier.tensors import geometry, span, storage_key, view_on_storage

Shape = tuple[int, ...]


def aliased_groups(inputs: Sequence[Any]) -> list[list[int]]:
    """The positions of the inputs on each storage that several inputs share, ordered by the first of them."""
    groups: dict[int, list[int]] = {}
    for place, value in enumerate(inputs):
        key = storage_key(value) if isinstance(value, torch.Tensor) else None
        if key is not None:
            groups.setdefault(key, []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def aliased_inputs(inputs: Sequence[Any]) -> set[int]:
    """The positions of all inputs that share their storage with another."""
    return {place for group in aliased_groups(inputs) for place in group}


def covering_storage(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, int] | None:
    """The piece of storage that the tensors cover (a flat tensor), and its offset. None for mixed dtypes."""
    plain = [tensor.detach() for tensor in tensors]
    if len({tensor.dtype for tensor in plain}) > 1:
        return None
    start = min(tensor.storage_offset() for tensor in plain)
    length = max(t.storage_offset() + (span(t) if t.numel() else 0) for t in plain) - start
    return plain[0].as_strided((length,), (1,), start), start


def move_views(flat: torch.Tensor, start: int, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same views on another storage, whose first element is the old element ``start``."""
    return _make_views(
        flat, [_ViewGeometry(tuple(t.shape), t.stride(), t.storage_offset() - start, t.requires_grad) for t in tensors]
    )


def covers_storage(tensor: torch.Tensor, length: int) -> bool:
    """Whether all other tensors on the storage can be views of this one: it covers the storage without a gradient."""
    return tensor.is_contiguous() and tensor.numel() == length and tensor.dim() > 0 and not tensor.requires_grad


def shrink_views(tensors: Sequence[torch.Tensor], shapes: Sequence[Shape], max_start: int) -> list[torch.Tensor] | None:
    """The tensors with smaller shapes on a smaller storage. On each axis a view starts at ``max_start`` or before.

    The storage is treated as a grid whose axes are the strides of the tensors, so that a slice stays a slice and a
    transpose stays a transpose. None if the dtypes differ or the strides form no grid.
    """
    if covering_storage(tensors) is None or any(tensor.numel() == 0 for tensor in tensors):
        return None
    grid = _Grid.of(tensors)
    if grid is None:
        return None
    begins = [[min(begin, max_start) for begin in each] for each in grid.starts]
    extents = _extents(tensors, shapes, begins, grid.axes)
    smaller = grid.corner(tensors[0].detach(), extents)
    if smaller is None:
        return None
    steps = dict(zip(grid.axes, smaller.stride(), strict=True))
    members = zip(tensors, shapes, begins, strict=True)
    views = [_view(tensor, shape, begin, steps) for tensor, shape, begin in members]
    return _make_views(smaller.view(-1), views)


@dataclass(frozen=True, slots=True)
class _ViewGeometry:
    shape: Shape
    stride: Shape
    offset: int
    grad: bool


def _make_views(flat: torch.Tensor, views: Sequence[_ViewGeometry]) -> list[torch.Tensor]:
    """Make views on a storage as a program would: if one tensor covers it, the others are views of that one."""
    plain = [view_on_storage(flat.untyped_storage(), flat.as_strided(v.shape, v.stride, v.offset)) for v in views]
    whole = next((t for t, v in zip(plain, views, strict=True) if not v.grad and covers_storage(t, len(flat))), None)
    base = flat if whole is None else whole
    with torch.enable_grad():  # a view made without gradients could not be written to
        seen: list[torch.Tensor] = [t if t is whole else base.as_strided(*geometry(t)) for t in plain]
    return [tensor.requires_grad_(view.grad) for tensor, view in zip(seen, views, strict=True)]


@dataclass(frozen=True, slots=True)
class _Grid:
    """A storage as a grid. ``axes``: the strides, largest first; ``starts``: the start of each tensor on each axis.

    Starts count from ``origin``, an element of the storage.
    """

    origin: int
    axes: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> _Grid | None:
        """A grid from the start of the storage, or from the first element that a tensor uses. None if neither fits."""
        starts = dict.fromkeys((0, min(tensor.storage_offset() for tensor in tensors)))
        return next((grid for start in starts if (grid := cls._from(start, tensors)) is not None), None)

    @classmethod
    def _from(cls, start: int, tensors: Sequence[torch.Tensor]) -> _Grid | None:
        """A grid whose axes are multiples of each other. A stride that crosses a smaller axis counts as steps on it."""
        axes = sorted({step for tensor in tensors for step in _steps(tensor)} | {1}, reverse=True)
        while True:
            begins = [_coordinates(tensor.storage_offset() - start, axes) for tensor in tensors]
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
        """A copy of the first values along each axis of a tensor's storage. None if the storage is too small."""
        last = self.origin + sum((extent - 1) * axis for extent, axis in zip(extents, self.axes, strict=True))
        if last >= tensor.untyped_storage().nbytes() // tensor.element_size():
            return None
        found = tensor.as_strided(tuple(extents), self.axes, self.origin)
        return torch.empty(tuple(extents), dtype=tensor.dtype, device=tensor.device).copy_(found)


def _view(tensor: torch.Tensor, shape: Shape, begin: Sequence[int], steps: dict[int, int]) -> _ViewGeometry:
    """The geometry of one tensor on the new grid. A dimension of size 1 gets its contiguous stride."""
    strides = [0] * len(shape)
    for dim in reversed(range(len(shape))):
        old, usual = tensor.stride(dim), strides[dim + 1] * shape[dim + 1] if dim + 1 < len(shape) else 1
        axis, count = _axis_steps(old, steps)
        strides[dim] = steps[axis] * count if tensor.shape[dim] > 1 else (old and usual)
    offset = sum(index * step for index, step in zip(begin, steps.values(), strict=True))
    return _ViewGeometry(shape, tuple(strides), offset, tensor.requires_grad)


def _steps(tensor: torch.Tensor) -> Iterable[int]:
    return (step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1 and step)


def _axis_steps(stride: int, axes: Iterable[int]) -> tuple[int, int]:
    """A stride as an axis and a number of steps along it."""
    axis = next(axis for axis in axes if stride % axis == 0)
    return axis, stride // axis


def _coordinates(offset: int, axes: Sequence[int]) -> list[int]:
    begin = []
    for axis in axes:
        begin.append(offset // axis)
        offset %= axis
    return begin


def _extents(
    tensors: Sequence[torch.Tensor], shapes: Sequence[Shape], begins: Sequence[Sequence[int]], axes: Sequence[int]
) -> list[int]:
    """The size of each axis that the tensors need with these shapes."""
    reach = dict.fromkeys(axes, 1)
    for tensor, shape, begin in zip(tensors, shapes, begins, strict=True):
        end = dict(zip(axes, begin, strict=True))
        for size, old, step in zip(shape, tensor.shape, tensor.stride(), strict=True):
            if old > 1:
                axis, count = _axis_steps(step, axes)
                end[axis] += (size - 1) * count
        reach = {axis: max(reach[axis], end[axis] + 1) for axis in axes}
    return list(reach.values())
