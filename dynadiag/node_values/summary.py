"""A summary of a value: its form, its range, how much of it is no number, a hash of its bytes, and some elements."""

from __future__ import annotations

import functools
import math
import operator
import zlib
from typing import Any

import torch
from torch.fx import Interpreter, Node

from dynadiag.torch_private.graph_calls import is_functorch_wrapper, is_hook_registration
from dynadiag.trial.reference_run import tensors_in

_SAMPLES = 64  # elements that are kept, at positions that depend on the number of elements alone
_BLOCK = 1 << 17  # elements that are looked at together: they stay in the processor's cache
_NO_RANGE = dict.fromkeys(("min", "max", "mean", "norm"))  # of a value without a finite element
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_summarized(value: Any) -> bool:
    """Whether a value is a tensor whose elements can be read: not sparse, quantized, a subclass, or in `vmap`."""
    if type(value) not in _PLAIN or is_functorch_wrapper(value):  # a value inside `vmap` or `grad` is a tensor by type
        return False
    return value.layout is torch.strided and not value.is_quantized and not value.is_meta


def summary_of(value: torch.Tensor) -> dict[str, Any]:
    """Return the summary of a tensor as JSON.

    ``min``, ``max``, ``mean`` and ``norm`` (the root of the sum of squares) are of the finite elements, of complex
    numbers of their absolute values; null where there are none. ``hash`` is the CRC-32 of the elements' bytes in
    row-major order.
    """
    value = value.detach()
    form = {
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "stride": list(value.stride()),
    }
    flat = _flat(value)
    data = flat.cpu().view(torch.uint8).numpy() if flat.numel() else b""
    return {**form, **_statistics(flat), "hash": f"{zlib.crc32(data):08x}"}


def twin_of(wide: torch.Tensor) -> dict[str, Any]:
    """Return the range and the elements of a node's value in float64 as JSON, with the keys of `summary_of`."""
    return _statistics(_flat(wide))


def have_same_bits(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same shape, type and elements, also where these are NaN."""
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    bits = _BITS.get(value.element_size(), torch.uint8)
    return not value.numel() or torch.equal(_flat(value).view(bits), _flat(other).view(bits))


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes alone take four times as long


def blocks(value: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the elements in row-major order, in parts that stay in the processor's cache."""
    return _flat(with_operators(value)).split(_BLOCK)


def with_operators(value: torch.Tensor) -> torch.Tensor:
    """Return the same numbers in a type that can be computed with."""
    return value.to(_WITH_OPERATORS.get(value.dtype, value.dtype))


def _flat(value: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order."""
    return value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)


_WITH_OPERATORS = {  # torch has no count, extremes or infinities of these; the other type has all their numbers
    torch.bool: torch.uint8,
    torch.uint16: torch.int64,
    torch.uint32: torch.int64,
    torch.uint64: torch.float64,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
    torch.float8_e8m0fnu: torch.float32,
}


def _statistics(flat: torch.Tensor) -> dict[str, Any]:
    numbers = flat.abs() if flat.is_complex() else with_operators(flat)
    samples = _samples(numbers)
    nan = inf = zero = 0
    bounds, total, squares = list[float](), 0.0, 0.0
    for part in numbers.split(_BLOCK) if numbers.numel() else ():
        zero += part.numel() - int(torch.count_nonzero(part))
        low, high = map(float, torch.aminmax(part))  # NaN where any element is
        if not math.isfinite(high - low):
            nan, inf = nan + int(part.isnan().sum()), inf + int(part.isinf().sum())
            part = part[part.isfinite()]
            if not part.numel():
                continue
            low, high = map(float, torch.aminmax(part))
        wide = part.double()
        bounds += low, high
        total, squares = total + float(wide.sum()), squares + float(wide.dot(wide))
    counts = {"nan": nan, "inf": inf, "zero": zero, "samples": samples}
    finite = numbers.numel() - nan - inf
    if not finite:
        return {**_NO_RANGE, **counts}
    mean, norm = total / finite, math.sqrt(squares)
    return {
        "min": min(bounds),
        "max": max(bounds),
        "mean": mean if math.isfinite(mean) else None,
        "norm": norm if math.isfinite(norm) else None,
        **counts,
    }


def _samples(numbers: torch.Tensor) -> list[float | int | str]:
    """Elements at fixed positions: integers, or numbers in seven digits; what is no number is a text."""
    if not numbers.numel():
        return []
    picked = numbers[_positions(numbers.numel()).to(numbers.device)]
    if not numbers.is_floating_point():
        return list(map(int, picked.tolist()))
    elements = picked.double().tolist()
    text = "%.7g " * len(elements) % tuple(elements)
    if "n" not in text:
        return list(map(float, text.split()))
    return [each if "n" in each else float(each) for each in text.split()]


@functools.cache
def _positions(count: int) -> torch.Tensor:
    return torch.linspace(0, count - 1, min(count, _SAMPLES), dtype=torch.float64).round().long()


def distance(value: torch.Tensor, wide: torch.Tensor) -> float | None:
    """Return the largest difference between a value and a more precise one, divided by the latter's largest element.

    Elements that are not finite in either are left out. None where the two are not comparable.
    """
    is_floating = value.is_floating_point() and wide.is_floating_point()
    if value.shape != wide.shape or not is_floating or not value.numel():
        return None
    largest = scale = -math.inf
    for own, true in zip(blocks(value), blocks(wide), strict=True):
        apart, size = largest_of(true - own), largest_of(true)
        if not (math.isfinite(apart) and math.isfinite(size)):
            finite = own.isfinite() & true.isfinite()
            apart, size = largest_of(true[finite] - own[finite]), largest_of(true[finite])
        largest, scale = max(largest, apart), max(scale, size)
    off = largest / scale if scale else largest
    return off if math.isfinite(off) else None


def largest_of(numbers: torch.Tensor) -> float:
    """Return the absolute value of the largest element: NaN where any element is, minus infinity where none is."""
    if not numbers.numel():
        return -math.inf
    low, high = torch.aminmax(numbers)
    return max(-float(low), float(high))


class ValueInterpreter(Interpreter):
    """An interpreter of what torch compiles.

    ``x[index] = y`` has a value: ``x``. ``aten.view`` takes a tensor of any stride, as Inductor's does: AOTAutograd
    traces a backward with the strides of eager, but Inductor may choose others, such as channels last, for what the
    forward saves; the gradient of a convolution has them then, and the view of it that was traced is impossible.
    Where no gradients are computed a hook has nothing to do, and cannot be registered.
    """

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.ops.aten.view.default:
            target = torch.ops.aten.reshape.default
        if is_hook_registration(target) and not args[0].requires_grad:
            return args[0]
        value = super().call_function(target, args, kwargs)
        return args[0] if target is operator.setitem else value

    def tensors_read(self, node: Node) -> list[torch.Tensor]:
        """The tensors that a node reads."""
        read = [self.env[source] for source in node.all_input_nodes]
        return read if all(isinstance(value, torch.Tensor) for value in read) else tensors_in(read)
