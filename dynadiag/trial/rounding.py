"""What rounding may do to a program's results: samples of it, as in Monte Carlo arithmetic.

Rounding inside a function is not seen from outside: a sum in another order falls on the other side of a threshold, a
value that is stored in float16 half way moves by a part in two thousand. So the function is run again in its own types,
with each operator's result worked out in float64, moved by the few units that its arithmetic may be off, and rounded up
or down by chance (D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997). A result that came exactly stays:
a comparison of whole numbers has no rounding to blame.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dynadiag.trial.float64 import default_dtype, is_operator, wide_argument, with_branches_in, written

__all__ = ["Rounding"]

# Units in the last place of the type that an operator computes in, which is float32 for the types of 16 bits: an
# elementary function of a vector library is off by up to one or two, a sum taken in another order by a few.
_POINTWISE_UNITS = 2.0
_REDUCTION_UNITS = 4.0
_CASTS = ("aten::_to_copy", "aten::copy_")  # pointwise, and not marked so


class Rounding(TorchDispatchMode):
    """While it is active each operator rounds by chance. ``seed`` makes two runs differ."""

    supports_higher_order_operators = True

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = args, kwargs or {}
        if not is_operator(func):
            return with_branches_in(self, func, *arguments)
        if not _computes(func, arguments):
            return func(*args, **arguments[1])
        before = pytree.tree_map(_wide_copy, arguments)
        result = func(*args, **arguments[1])
        results = written(func, result, arguments)
        if any(map(_may_round, results)) and not any(map(_overlaps_itself, results)):
            self._round_all(func, results, before)
        return result

    def _round_all(self, func: Any, results: list[Any], before: Any) -> None:
        pointwise = torch.Tag.pointwise in func.tags or func._schema.name in _CASTS
        eps = next(_computing_eps(own.dtype) for own in results if _may_round(own))
        units = _POINTWISE_UNITS if pointwise else _REDUCTION_UNITS
        others = None if pointwise else pytree.tree_map(lambda value: self._operand(value, units * eps), before)
        true = _in_float64(func, before)
        moved = true if others is None else _in_float64(func, others)
        for own, exact, other in zip(results, true or (), moved or (), strict=False):
            if _may_round(own) and own.shape == exact.shape:
                self._round(own, exact, other, units)

    def _operand(self, value: Any, share: float) -> Any:
        """An operand a few units off: for a sum, to take it in another order is as if its operands were."""
        if not isinstance(value, torch.Tensor) or not _is_number(value):
            return value
        return value * (1 + self._chance(value, -share, share))

    def _round(self, own: torch.Tensor, exact: torch.Tensor, other: torch.Tensor, units: float) -> None:
        """Puts a result that might have come in the place of the one that came."""
        if own.is_complex():
            own, exact, other = map(torch.view_as_real, (own, exact, other))
        value = other * (1 + self._chance(other, -units, units) * _computing_eps(own.dtype))
        dithered = value + self._chance(value, -0.5, 0.5) * _unit(value, own.dtype)
        own.copy_(torch.where(_held(own, exact), exact, dithered))

    def _chance(self, like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        values = torch.empty(like.shape, dtype=torch.float64)
        return values.uniform_(low, high, generator=self._generator).to(like.device)


def _computes(func: Any, arguments: Any) -> bool:
    """Whether an operator works out new values from tensors: a view shares them, and random ones are drawn once."""
    schema = func._schema
    if torch.Tag.nondeterministic_seeded in func.tags:
        return False
    views = any(value.alias_info is not None and not value.alias_info.is_write for value in schema.returns)
    return not views and any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(arguments))


def _wide_copy(value: Any) -> Any:
    """What an operator is given, in float64 and in memory of its own: operators write to what they are given too."""
    wide = wide_argument(value)
    return wide.clone() if isinstance(wide, torch.Tensor) and wide is value else wide


def _in_float64(func: Any, arguments: Any) -> list[Any] | None:
    """What the operator gives and writes; None where there is none of it for float64."""
    args, kwargs = arguments
    try:
        with default_dtype(torch.float64):
            result = func(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError):  # this operator has no float64: its own result stands
        return None
    return written(func, result, arguments)


def _is_number(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _overlaps_itself(value: Any) -> bool:
    """Whether elements share memory: what is left there by a write is not the value of any one of them."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    reach = 0  # of the dimensions with smaller steps
    for stride, size in sorted(pair for pair in zip(value.stride(), value.shape, strict=True) if pair[1] > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _may_round(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and _is_number(value)


def _computing_eps(dtype: torch.dtype) -> float:
    """Of the type that an operator works in: a type of 16 bits is only stored."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).eps


def _unit(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of neighbours in ``dtype`` around each value."""
    exponent = torch.frexp(value).exponent - 1
    return torch.ldexp(torch.full_like(value, torch.finfo(dtype).eps), exponent)


def _held(own: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Where the operator's own result is the true one. For float64, which is its own judge, that is a whole number."""
    return exact == (exact.round() if own.dtype is torch.float64 else own)
