"""Writes inputs as source: values, strides, gradients and aliasing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from minifier.aliasing import aliased_groups, aliased_inputs, covering_storage, covers_storage
from minifier.emit.expressions import literal_source
from minifier.emit.identifiers import NameAllocator
from minifier.emit.tensor_literals import exact_expression, factory_call
from minifier.errors import EmitError
from minifier.simplify.plain_inputs import SEED
from minifier.tensors import geometry, span
from minifier.torch_private import base_of, is_zero_tensor


def input_lines(values: Sequence[Any], parameters: Sequence[str], names: NameAllocator) -> list[str]:
    """A line for each input, aliased inputs first. With random values, the first line sets the seed.

    Raises `EmitError`.
    """
    lines: list[str] = []
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        for group in aliased_groups(values):
            lines.extend(_aliased_lines([(parameters[i], values[i]) for i in group], names))
        inside = aliased_inputs(values)
        for i, (name, value) in enumerate(zip(parameters, values, strict=True)):
            if i not in inside:
                lines.append(f"{name} = {input_expression(value)}")
    return [f"torch.manual_seed({SEED})", *lines] if any("torch.randn(" in line for line in lines) else lines


def input_expression(value: Any) -> str:
    """An expression for an input that is not aliased. Raises `EmitError`."""
    return (
        _with_grad(value, _tensor_expression(value.detach()))
        if isinstance(value, torch.Tensor)
        else literal_source(value)
    )


def _tensor_expression(plain: torch.Tensor) -> str:
    if is_zero_tensor(plain):
        dtype = "" if plain.dtype is torch.get_default_dtype() else f", dtype={plain.dtype}"
        return f"torch._efficientzerotensor({tuple(plain.shape)}{dtype})"
    if plain.is_conj():
        return f"{_tensor_expression(plain.conj())}.conj()"
    if plain.is_contiguous():
        return factory_call(plain) or exact_expression(plain)
    order = _dense_order(plain)
    if order is not None:
        base = plain.permute(order)
        back = [order.index(dim) for dim in range(plain.dim())]
        turned = "t()" if back == [1, 0] else f"permute({', '.join(map(str, back))})"
        return f"{factory_call(base) or exact_expression(base)}.{turned}"
    if _is_expanded(plain):
        base = plain[tuple(slice(None) if stride else slice(1) for stride in plain.stride())]
        return f"{factory_call(base) or exact_expression(base)}.expand({', '.join(map(str, plain.shape))})"
    return _by_storage(plain)


def _by_storage(plain: torch.Tensor) -> str:
    """A flat tensor with the storage that a tensor covers, as_strided to its geometry: keeps holes and overlaps."""
    flat = plain.as_strided((span(plain),), (1,), plain.storage_offset())
    return f"{factory_call(flat) or exact_expression(flat)}.as_strided({tuple(plain.shape)}, {plain.stride()})"


def _dense_order(plain: torch.Tensor) -> list[int] | None:
    """The permutation of dimensions that makes the tensor contiguous; None if there is none."""
    order = sorted(range(plain.dim()), key=lambda dim: -plain.stride(dim))
    return order if plain.permute(order).is_contiguous() else None


def _is_expanded(plain: torch.Tensor) -> bool:
    kept = plain[tuple(slice(None) if stride else slice(1) for stride in plain.stride())]
    return 0 in plain.stride() and kept.is_contiguous() and kept.expand(plain.shape).stride() == plain.stride()


def _with_grad(tensor: torch.Tensor, source: str) -> str:
    if isinstance(tensor, torch.nn.Parameter):
        return f"torch.nn.Parameter({source})" if tensor.requires_grad else f"torch.nn.Parameter({source}, False)"
    return f"{source}.requires_grad_()" if tensor.requires_grad else source


def _aliased_lines(members: list[tuple[str, torch.Tensor]], names: NameAllocator) -> list[str]:
    """The lines of aliased inputs: one tensor for the storage, and a view of it for each input."""
    tensors = [tensor.detach() for _, tensor in members]
    covered = covering_storage(tensors)
    if covered is None:
        raise EmitError("inputs of different dtypes share a storage: this cannot be written as source")
    flat, start = covered
    end = start + len(flat)
    whole = next((i for i, (_, tensor) in enumerate(members) if covers_storage(tensor, len(flat))), None)
    base = members[whole][0] if whole is not None else names.unique_name("storage")
    flattened = base if whole is None else f"{base}.view(-1)"
    shape = tensors[whole].shape if whole is not None else flat.shape
    source = factory_call(flat.view(shape)) or exact_expression(flat.view(shape))
    viewed = any(base_of(tensor) is not None for _, tensor in members)
    lines = [
        f"{base} = {source}{'.clone()' if viewed and '.reshape(' in source else ''}"
    ]  # the base must not be a view
    for i, (name, tensor) in enumerate(members):
        if i != whole:
            view = _slice_expression(base, tensors[whole], tensors[i]) if whole is not None else None
            lines.append(f"{name} = {_with_grad(tensor, view or _view_expression(flattened, tensors[i], start, end))}")
    return lines


def _slice_expression(name: str, whole: torch.Tensor, plain: torch.Tensor) -> str | None:
    """A tensor as a slice or row of another one, or of its transpose; None if it is neither."""
    turned = [(f"{name}.t()", whole.t())] if whole.dim() == 2 else []
    for text, source in [(name, whole), *turned]:
        index = _index(source, plain)
        if index is not None and geometry(source[index]) == geometry(plain):
            written = ", ".join(_slice(part, size) for part, size in zip(index, source.shape, strict=True))
            return f"{text}[{written.removesuffix(', :')}]" if written.strip(":, ") else text
    return None


def _index(source: torch.Tensor, plain: torch.Tensor) -> tuple[Any, ...] | None:
    """The index of a view in its source, if it has the same dimensions, or all but the first; else None."""
    rest = plain.storage_offset() - source.storage_offset()
    begins = [0] * source.dim()
    for dim in sorted(range(source.dim()), key=lambda dim: -source.stride(dim)):
        begins[dim] = min(rest // max(source.stride(dim), 1), source.shape[dim] - 1)
        rest -= begins[dim] * source.stride(dim)
    rows = source.dim() - plain.dim()
    if rows not in (0, 1):
        return None
    sizes = zip(begins[rows:], plain.shape, strict=True)
    return (*begins[:rows], *(slice(begin, begin + size) for begin, size in sizes))


def _slice(part: Any, size: int) -> str:
    if not isinstance(part, slice):
        return str(part)
    return f"{part.start or ''}:{part.stop if part.stop < size else ''}"


def _view_expression(base: str, plain: torch.Tensor, start: int, end: int) -> str:
    """A tensor as a view of ``base``, the name of a flat tensor. ``start`` and ``end`` are offsets in the storage."""
    offset = plain.storage_offset() - start
    if plain.is_contiguous() and plain.dim() == 1:
        return f"{base}[{offset or ''}:{offset + len(plain) if offset + len(plain) < end - start else ''}]"
    if plain.is_contiguous() and plain.numel() == end - start:
        return f"{base}.view({', '.join(map(str, plain.shape))})"
    return f"{base}.as_strided({tuple(plain.shape)}, {plain.stride()}, {offset})"
