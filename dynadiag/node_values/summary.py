"""A summary of a value: its form, its range, how much of it is no number, a hash of its bytes, and some elements."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch
from torch.fx import Interpreter

_SAMPLES = 64  # elements that are kept, at positions that depend on the number of elements alone
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_summarized(value: Any) -> bool:
    """Whether a value is a tensor whose elements can be read: not sparse, not quantized, not a subclass."""
    return type(value) in _PLAIN and value.layout is torch.strided and not value.is_quantized and not value.is_meta


def summary_of(value: torch.Tensor) -> dict[str, Any]:
    """Return the summary of a tensor as JSON.

    ``min``, ``max``, ``mean`` and ``norm`` (the root of the sum of squares) are of the finite elements, of complex
    numbers of their absolute values; null where there are none. ``hash`` is of the elements' bytes in row-major order.
    """
    value = value.detach()
    form = {
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "stride": list(value.stride()),
    }
    flat = _flat(value)
    numbers = flat.abs() if flat.is_complex() else flat
    nan, inf = _not_finite(numbers)
    data = flat.cpu().view(torch.uint8).numpy() if flat.numel() else b""
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    elements = {"samples": _samples(numbers), "hash": digest}
    return {**form, "nan": nan, "inf": inf, **_statistics(numbers, nan + inf), **elements}


def twin_of(wide: torch.Tensor) -> dict[str, Any]:
    """Return the range and the elements of a node's value in float64 as JSON, with the keys of `summary_of`."""
    flat = _flat(wide)
    numbers = flat.abs() if flat.is_complex() else flat
    nan, inf = _not_finite(numbers)
    return {"nan": nan, "inf": inf, **_statistics(numbers, nan + inf), "samples": _samples(numbers)}


def have_same_bits(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same shape, type and elements, also where these are NaN."""
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    return not value.numel() or torch.equal(_flat(value).view(torch.uint8), _flat(other).view(torch.uint8))


def _flat(value: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order."""
    return value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)


def _not_finite(numbers: torch.Tensor) -> tuple[int, int]:
    """How many are NaN, and how many are infinite. The sum tells whether to count at all."""
    if not numbers.is_floating_point() or math.isfinite(float(numbers.sum(dtype=torch.float64))):
        return 0, 0
    return int(numbers.isnan().sum()), int(numbers.isinf().sum())


def _statistics(numbers: torch.Tensor, not_finite: int) -> dict[str, Any]:
    zero = numbers.numel() - int(torch.count_nonzero(numbers))
    if not_finite:
        numbers = numbers[numbers.isfinite()]
    if not numbers.numel():
        return {"min": None, "max": None, "mean": None, "norm": None, "zero": zero}
    if numbers.dtype is torch.bool:
        numbers = numbers.to(torch.uint8)
    low, high = torch.aminmax(numbers)
    mean = float(numbers.sum(dtype=torch.float64)) / numbers.numel()
    floating = numbers if numbers.is_floating_point() else numbers.double()
    norm = float(torch.linalg.vector_norm(floating, dtype=torch.float64))
    return {
        "min": float(low),
        "max": float(high),
        "mean": mean if math.isfinite(mean) else None,
        "norm": norm if math.isfinite(norm) else None,
        "zero": zero,
    }


def _samples(numbers: torch.Tensor) -> list[float | str]:
    """Elements at fixed positions, in seven digits; what is no number is a text."""
    count = numbers.numel()
    if not count:
        return []
    at = torch.linspace(0, count - 1, min(count, _SAMPLES), dtype=torch.float64).round().long()
    samples = [float(f"{each:.7g}") for each in numbers[at.to(numbers.device)].double().tolist()]
    return [each if math.isfinite(each) else str(each) for each in samples]


def distance(value: torch.Tensor, wide: torch.Tensor) -> float | None:
    """Return the largest difference of a value from its float64 twin, relative to the twin's largest element.

    Elements that are not finite in either are left out. None where the two are not comparable.
    """
    if value.shape != wide.shape or not wide.is_floating_point() or not value.numel():
        return None
    own = value.double()
    apart = (own - wide).abs_()
    largest, scale = float(apart.max()), float(wide.abs().max())
    if not (math.isfinite(largest) and math.isfinite(scale)):
        finite = own.isfinite() & wide.isfinite()
        if not bool(finite.any()):
            return None
        largest, scale = float(apart[finite].max()), float(wide[finite].abs().max())
    off = largest / scale if scale else largest
    return off if math.isfinite(off) else None


class LayoutInterpreter(Interpreter):
    """An interpreter in which ``aten.view`` takes a tensor of any stride, as Inductor's does.

    AOTAutograd traces a backward with the strides of eager. Inductor may choose others, such as channels last, for what
    the forward saves; the gradient of a convolution has them then, and the view of it that was traced is impossible.
    """

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.ops.aten.view.default:
            target = torch.ops.aten.reshape.default
        return super().call_function(target, args, kwargs)
