"""Writes tensors as source: the shortest expression with exactly these values."""

from __future__ import annotations

import base64
import math
import textwrap
import zlib

import torch

from minifier.emit.expressions import literal_source
from minifier.simplify.plain_inputs import FILLS, make_filled
from minifier.tensors import value_bytes

# The numbers that fit on a line or two. Larger tensors are packed.
_MAX_WRITTEN_VALUES = 64
_PACKED_LINE = 100
_LINE = 90


def factory_call(tensor: torch.Tensor) -> str | None:
    """A factory call for values with a pattern, or None. `torch.randn` needs the random state of its first drawing."""
    for kind in FILLS:
        state = torch.random.get_rng_state()
        if _same_bits(make_filled(kind, tensor), tensor):
            return _factory_source(kind, tensor)
        torch.random.set_rng_state(state)
    first = tensor.reshape(-1)[:1]
    if tensor.numel() > 1 and _same_bits(first.expand(tensor.shape), tensor):
        return _factory_source("full", tensor)
    return None


def exact_expression(tensor: torch.Tensor) -> str:
    """An expression for a contiguous tensor with exactly these values: written out, or packed."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if plain.numel() > _MAX_WRITTEN_VALUES:
        return packed_expression(plain) + _device(tensor)
    natural = torch.tensor(plain.tolist()) if plain.numel() else torch.empty(tuple(plain.shape))
    if plain.numel() == 0:
        return f"torch.empty({_shape(plain)}{_dtype(plain)}){_device(tensor)}"
    dtype = "" if natural.dtype == plain.dtype else f", dtype={plain.dtype}"
    return _wrap(f"torch.tensor({_nested(plain)}{dtype}){_device(tensor)}")


def _wrap(text: str) -> str:
    """The expression on several lines if it is long. It has spaces only inside brackets."""
    return "\n".join(textwrap.wrap(text, _LINE, subsequent_indent="    ", break_long_words=False))


def packed_expression(tensor: torch.Tensor) -> str:
    """An expression with the tensor's bytes, compressed and in base 85: for too many values to write out."""
    data = value_bytes(tensor).numpy().tobytes()
    text = base64.b85encode(zlib.compress(data, 9)).decode("ascii")
    lines = [text[i : i + _PACKED_LINE] for i in range(0, len(text), _PACKED_LINE)]
    quoted = "\n".join(f"    {literal_source(line)}" for line in lines)
    buffer = f"bytearray(zlib.decompress(base64.b85decode(\n{quoted}\n)))"
    return f"torch.frombuffer({buffer}, dtype=torch.uint8).view({tensor.dtype}).reshape({_shape(tensor)})"


def uses_packing(source: str) -> bool:
    """Whether the source has an expression of `packed_expression`, and so needs base64 and zlib."""
    return "zlib.decompress(" in source


def _factory_source(kind: str, tensor: torch.Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape)) or "()"
    if kind == "arange":
        return _arange(tensor)
    if kind == "full":
        return f"torch.full({_shape(tensor)}, {_number(tensor.reshape(-1)[:1])}{_dtype(tensor)})" + _device(tensor)
    if kind == "randn" and not tensor.is_floating_point() and not tensor.is_complex():
        return f"torch.randn({shape}).to({tensor.dtype})" + _device(tensor)
    if kind == "randn" and tensor.dtype is not torch.float32:
        drawn = ", dtype=torch.complex64" if tensor.is_complex() else ""
        return (
            f"torch.randn({shape}{drawn})"
            + ("" if tensor.dtype is torch.complex64 else f".to({tensor.dtype})")
            + _device(tensor)
        )
    return f"torch.{kind}({shape}{_dtype(tensor)})" + _device(tensor)


def _arange(tensor: torch.Tensor) -> str:
    count = tensor.numel()
    if tensor.dtype is torch.float32:
        source = f"torch.arange({count}.0)"
    elif tensor.dtype is torch.int64:
        source = f"torch.arange({count})"
    else:
        source = f"torch.arange({count}).to({tensor.dtype})"
    reshaped = "" if tensor.dim() == 1 else f".reshape({_shape(tensor)})"
    return source + reshaped + _device(tensor)


def _nested(tensor: torch.Tensor) -> str:
    if tensor.dim() == 0:
        return _number(tensor)
    return "[" + ", ".join(_nested(part) for part in tensor) + "]"


def _number(tensor: torch.Tensor) -> str:
    value = tensor.item()
    if isinstance(value, float) and math.isfinite(value) and value:
        return _shortest(value, tensor.dtype)
    return literal_source(value)


def _shortest(value: float, dtype: torch.dtype) -> str:
    """The number with the fewest digits that read back exactly in this dtype."""
    for digits in range(1, 17):
        text = f"{value:.{digits}g}"
        if torch.tensor(float(text), dtype=dtype).item() == value:
            return repr(float(text))
    return repr(value)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both have the same bits: minus zero differs from zero, and NaNs may differ."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(value_bytes(one), value_bytes(other))


def _shape(tensor: torch.Tensor) -> str:
    return "(" + ", ".join(map(str, tensor.shape)) + ("," if tensor.dim() == 1 else "") + ")"


def _dtype(tensor: torch.Tensor) -> str:
    return "" if tensor.dtype is torch.float32 else f", dtype={tensor.dtype}"


def _device(tensor: torch.Tensor) -> str:
    if tensor.device.type == "cpu":
        return ""
    name = tensor.device.type if not tensor.device.index else str(tensor.device)
    return f'.to("{name}")'
