"""Copies tensors faithfully (strides, aliasing, autograd), and visits the leaves of nested arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from minifier.errors import ReductionError
from minifier.torch_private import base_of, is_transformed, is_zero_tensor


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """A copy of `value` with `function` applied to each leaf in its tuples, lists, dicts and slices."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(function, v) for v in value))
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(map_leaves(function, v) for v in value)
    if isinstance(value, dict):
        return {k: map_leaves(function, v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(map_leaves(function, v) for v in (value.start, value.stop, value.step)))
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    """The leaves that `map_leaves` visits."""
    found: list[Any] = []
    map_leaves(found.append, value)
    return iter(found)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among the leaves."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def storage_key(tensor: torch.Tensor) -> int | None:
    """A key of the tensor's storage: equal for two live tensors that share it. None without a storage to share."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return None
    if is_zero_tensor(tensor) or is_transformed(tensor):
        return None
    return tensor.untyped_storage().data_ptr() or None


def value_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's values in logical order: uint8, flat, on the CPU."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    flat = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)  # `contiguous` keeps odd strides of one element
    return flat.view(-1).view(torch.uint8)


def check_inputs(inputs: Sequence[Any]) -> None:
    """Raises `ReductionError` for inputs that cannot be copied faithfully: tensor subclasses, nested inputs."""
    for place, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                raise ReductionError(
                    f"input {place} is a {type(value).__name__}: only plain tensors can be reduced; unwrap it first"
                )
        elif isinstance(value, (tuple, list, dict)):
            raise ReductionError(f"input {place} is a {type(value).__name__}: flatten the inputs of the graph first")


def copy_values(values: Sequence[Any]) -> list[Any]:
    """Copies with the same strides, values and `requires_grad`. Tensors that share a storage share one in the copies.

    A view of another tensor, in the sense of autograd, is a view of its copy.
    """
    keys = [storage_key(v) if isinstance(v, torch.Tensor) else None for v in values]
    shared = {key for key, count in Counter(keys).items() if key is not None and count > 1}
    sharing = [v for v, key in zip(values, keys, strict=True) if key in shared]
    copied = _AliasedCopies(sharing)
    return [
        v if not isinstance(v, torch.Tensor) else copied.of(v) if key in shared else compact_copy(v)
        for v, key in zip(values, keys, strict=True)
    ]


class _AliasedCopies:
    """Copies tensors together with the storages that they share. Tensors that may be the base of a view come first."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._storages: dict[int | None, torch.UntypedStorage] = {}
        self._copies: dict[int, torch.Tensor] = {}
        for tensor in tensors:
            if base_of(tensor) is None:
                self._copies[id(tensor)] = _with_autograd_state(tensor, self._plain(tensor))

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        base = base_of(tensor)
        if base is None:
            return self._copies[id(tensor)]
        if id(base) not in self._copies:
            self._copies[id(base)] = self._plain(base)
        if base.dtype != tensor.dtype or self._copies[id(base)].requires_grad:
            return _with_autograd_state(tensor, self._plain(tensor))
        with torch.enable_grad():  # a view made without gradients could not be written to
            view = self._copies[id(base)].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return _with_autograd_state(tensor, view)

    def _plain(self, tensor: torch.Tensor) -> torch.Tensor:
        key = storage_key(tensor)
        if key not in self._storages:
            self._storages[key] = tensor.untyped_storage().clone()
        return view_on_storage(self._storages[key], tensor)


def span(tensor: torch.Tensor) -> int:
    """The number of elements of the storage from the first to the last that a tensor has. It must have one."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def geometry(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The shape, the strides and the storage offset of a tensor."""
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def compact_copy(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A copy with the same strides in the smallest storage that holds them. ``device`` defaults to the tensor's."""
    plain = tensor.detach()
    if is_zero_tensor(tensor):
        return _with_autograd_state(tensor, plain)  # it has no storage, so nothing can write to it
    if tensor.layout is not torch.strided or tensor.numel() == 0 or tensor.is_conj() or tensor.is_neg():
        return _with_autograd_state(tensor, _copied(plain, device))
    flat = _copied(plain.as_strided((span(tensor),), (1,), tensor.storage_offset()), device)
    return _with_autograd_state(tensor, flat.as_strided(tensor.shape, tensor.stride()))


def _copied(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    return tensor.clone() if device is None else tensor.to(device, copy=True)


def same_metadata(one: Any, other: Any) -> bool:
    """Whether both are tensors of the same shape, dtype, device and layout, so that one can replace the other."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return (one.shape, one.dtype, one.device, one.layout) == (other.shape, other.dtype, other.device, other.layout)


def view_on_storage(storage: torch.UntypedStorage, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on another storage with the same offset, shape and strides."""
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def _with_autograd_state(tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
    return copy.requires_grad_() if tensor.requires_grad else copy
