"""Inputs as source: values, strides, gradients, and which of them share a storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from minifier.emit.errors import EmitError
from minifier.emit.expressions import literal
from minifier.emit.names import Names
from minifier.emit.values import exact, recognised
from minifier.simplify.values import SEED
from minifier.tensors import storage_key

__all__ = ["input_lines"]


def input_lines(values: Sequence[Any], parameters: Sequence[str], names: Names) -> list[str]:
    """A line for each input, after those of the storages that several share; the seed first, if any is random."""
    shared = _shared(values)
    lines: list[str] = []
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        for group in shared:
            lines.extend(_group_lines([(parameters[i], values[i]) for i in group], names))
        inside = {i for group in shared for i in group}
        for i, (name, value) in enumerate(zip(parameters, values, strict=True)):
            if i not in inside:
                source = _alone(value) if isinstance(value, torch.Tensor) else literal(value)
                lines.append(f"{name} = {source}")
    return [f"torch.manual_seed({SEED})", *lines] if any("torch.randn(" in line for line in lines) else lines


def _alone(tensor: torch.Tensor) -> str:
    plain = tensor.detach()
    return _with_grad(tensor, _strided(plain))


def _strided(plain: torch.Tensor) -> str:
    if plain.is_conj():
        return f"{_strided(plain.conj())}.conj()"
    if plain.is_contiguous():
        return recognised(plain) or exact(plain)
    order = _dense_order(plain)
    if order is not None:
        base = plain.permute(order)
        back = [order.index(dim) for dim in range(plain.dim())]
        turned = "t()" if back == [1, 0] else f"permute({', '.join(map(str, back))})"
        return f"{recognised(base) or exact(base)}.{turned}"
    if _is_expanded(plain):
        base = plain[tuple(slice(None) if stride else slice(1) for stride in plain.stride())]
        return f"{recognised(base) or exact(base)}.expand({', '.join(map(str, plain.shape))})"
    return _by_storage(plain)


def _by_storage(plain: torch.Tensor) -> str:
    """The piece of storage that a tensor covers, looked at with its strides; holes in it and overlaps included."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(plain.shape, plain.stride(), strict=True))
    flat = plain.as_strided((span,), (1,), plain.storage_offset())
    return f"{recognised(flat) or exact(flat)}.as_strided({tuple(plain.shape)}, {plain.stride()})"


def _dense_order(plain: torch.Tensor) -> list[int] | None:
    """The order of dimensions in which the tensor is contiguous, if there is one."""
    order = sorted(range(plain.dim()), key=lambda dim: -plain.stride(dim))
    return order if plain.permute(order).is_contiguous() else None


def _is_expanded(plain: torch.Tensor) -> bool:
    kept = plain[tuple(slice(None) if stride else slice(1) for stride in plain.stride())]
    return 0 in plain.stride() and kept.is_contiguous() and kept.expand(plain.shape).stride() == plain.stride()


def _with_grad(tensor: torch.Tensor, source: str) -> str:
    if isinstance(tensor, torch.nn.Parameter):
        return f"torch.nn.Parameter({source})" if tensor.requires_grad else f"torch.nn.Parameter({source}, False)"
    return f"{source}.requires_grad_()" if tensor.requires_grad else source


def _shared(values: Sequence[Any]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for i, value in enumerate(values):
        key = storage_key(value) if isinstance(value, torch.Tensor) else None
        if key is not None:
            groups.setdefault(key, []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def _group_lines(members: list[tuple[str, torch.Tensor]], names: Names) -> list[str]:
    """One tensor for the storage, and a view of it for each input."""
    tensors = [tensor.detach() for _, tensor in members]
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise EmitError("inputs of different dtypes share a storage: that has no plain form in source")
    start = min(tensor.storage_offset() for tensor in tensors)
    end = max(_end(tensor) for tensor in tensors)
    flat = tensors[0].as_strided((end - start,), (1,), start)
    base = names.free("storage")
    lines = [f"{base} = {recognised(flat) or exact(flat)}"]
    for (name, tensor), plain in zip(members, tensors, strict=True):
        lines.append(f"{name} = {_with_grad(tensor, _view(base, plain, start, end))}")
    return lines


def _end(tensor: torch.Tensor) -> int:
    inside = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.storage_offset() + (inside + 1 if tensor.numel() else 0)


def _view(base: str, plain: torch.Tensor, start: int, end: int) -> str:
    offset = plain.storage_offset() - start
    if plain.is_contiguous() and plain.dim() == 1:
        return f"{base}[{offset or ''}:{offset + len(plain) if offset + len(plain) < end - start else ''}]"
    if plain.is_contiguous() and plain.numel() == end - start:
        return f"{base}.view({', '.join(map(str, plain.shape))})"
    return f"{base}.as_strided({tuple(plain.shape)}, {plain.stride()}, {offset})"
