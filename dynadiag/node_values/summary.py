"""A summary of a value: its form, its range, how much of it is no number, a hash of its bytes, and some elements."""

from __future__ import annotations

import functools
import math
import zlib
from typing import Any

import torch
from torch.fx import Interpreter, Node

from dynadiag.trial.reference_run import tensors_in

_SAMPLES = 64  # elements that are kept, at positions that depend on the number of elements alone
_NO_RANGE = dict.fromkeys(("min", "max", "mean", "norm"))  # of a value without a finite element
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_summarized(value: Any) -> bool:
    """Whether a value is a tensor whose elements can be read: not sparse, not quantized, not a subclass."""
    return type(value) in _PLAIN and value.layout is torch.strided and not value.is_quantized and not value.is_meta


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
    return not value.numel() or torch.equal(_flat(value).view(torch.uint8), _flat(other).view(torch.uint8))


def _flat(value: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order."""
    return value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)


def _statistics(flat: torch.Tensor) -> dict[str, Any]:
    numbers = flat.abs() if flat.is_complex() else flat
    samples = _samples(numbers)
    if not numbers.numel():
        return {"nan": 0, "inf": 0, **_NO_RANGE, "zero": 0, "samples": samples}
    nan = inf = 0
    zero = numbers.numel() - int(torch.count_nonzero(numbers))
    if numbers.dtype is torch.bool:
        numbers = numbers.to(torch.uint8)
    low, high = map(float, torch.aminmax(numbers))  # NaN where any element is
    if not math.isfinite(high - low):
        nan, inf = int(numbers.isnan().sum()), int(numbers.isinf().sum())
        numbers = numbers[numbers.isfinite()]
        if not numbers.numel():
            return {"nan": nan, "inf": inf, **_NO_RANGE, "zero": zero, "samples": samples}
        low, high = map(float, torch.aminmax(numbers))
    wide = numbers.double()
    mean, norm = float(wide.mean()), math.sqrt(float(wide.dot(wide)))
    return {
        "nan": nan,
        "inf": inf,
        "min": low,
        "max": high,
        "mean": mean if math.isfinite(mean) else None,
        "norm": norm if math.isfinite(norm) else None,
        "zero": zero,
        "samples": samples,
    }


def _samples(numbers: torch.Tensor) -> list[float | str]:
    """Elements at fixed positions, in seven digits; what is no number is a text."""
    if not numbers.numel():
        return []
    elements = numbers[_positions(numbers.numel()).to(numbers.device)].double().tolist()
    texts = ("%.7g " * len(elements) % tuple(elements)).split()
    return [text if text.endswith(("nan", "inf")) else float(text) for text in texts]


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
    apart = wide - value
    largest, scale = _largest(apart), _largest(wide)
    if not (math.isfinite(largest) and math.isfinite(scale)):
        finite = value.isfinite() & wide.isfinite()
        if not bool(finite.any()):
            return None
        largest, scale = _largest(apart[finite]), _largest(wide[finite])
    off = largest / scale if scale else largest
    return off if math.isfinite(off) else None


def _largest(numbers: torch.Tensor) -> float:
    """The absolute value of the largest element; NaN where any element is."""
    low, high = torch.aminmax(numbers)
    return max(-float(low), float(high))


class LayoutInterpreter(Interpreter):
    """An interpreter in which ``aten.view`` takes a tensor of any stride, as Inductor's does.

    AOTAutograd traces a backward with the strides of eager. Inductor may choose others, such as channels last, for what
    the forward saves; the gradient of a convolution has them then, and the view of it that was traced is impossible.
    """

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.ops.aten.view.default:
            target = torch.ops.aten.reshape.default
        return super().call_function(target, args, kwargs)

    def tensors_read(self, node: Node) -> list[torch.Tensor]:
        """The tensors that a node reads."""
        read = [self.env[source] for source in node.all_input_nodes]
        return read if all(isinstance(value, torch.Tensor) for value in read) else tensors_in(read)
