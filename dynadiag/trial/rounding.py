"""Samples the effect of rounding on a program's results, by Monte Carlo arithmetic. Rounding inside a function cannot
be seen from outside: a sum in another order may fall on the other side of a threshold, and a value that is stored in
float16 on the way changes by one part in two thousand. So the function runs again in its own types. Each operator's
result is computed in float64, moved by a random error of the few units that its arithmetic may have, and rounded up or
down at random (D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997). Exact results stay: comparing whole
numbers involves no rounding. The result of a sum may be exact by chance, and another order of summation gives another:
it stays only if moving its operands does not change it, or if these are whole numbers or hold it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dynadiag.trial.float64 import argument_to_float64, default_dtype, is_operator, run_branches_under, written_tensors

# Units in the last place of the type that an operator computes in (float32 for 16-bit types). An elementary function
# of a vector library has an error of up to two, a sum in another order of a few.
_POINTWISE_UNITS = 2.0
_REDUCTION_UNITS = 4.0
_CAST_OPERATORS = ("aten::_to_copy", "aten::copy_")  # pointwise, but torch does not tag them so
# A remainder has the error of its dividend, which may be much larger than it is.
_CANCELLING_OPERATORS = ("aten::remainder", "aten::fmod")
# Operators that divide on the way: what they compute of whole numbers is not whole.
_DIVIDING_OPERATORS = ("norm", "var", "std", "softmax")


class StochasticRounding(TorchDispatchMode):
    """Makes each operator round at random while it is active. Two runs with different seeds round differently."""

    supports_higher_order_operators = True

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = args, kwargs or {}
        if not is_operator(func):
            return run_branches_under(self, func, *arguments)
        if not _computes_values(func, arguments):
            return func(*args, **arguments[1])
        before = pytree.tree_map(_float64_copy, arguments)
        result = func(*args, **arguments[1])
        results = written_tensors(func, result, arguments)
        if any(map(_is_roundable, results)) and not any(map(_overlaps_itself, results)):
            self._round_results(func, results, before)
        return result

    def moved(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value moved by up to a unit in the last place: with as much as rounding it may have lost."""
        wide = value.double()
        return (wide + self._uniform(wide, -1.0, 1.0) * _ulp(wide, value.dtype)).to(value.dtype)

    def _round_results(self, func: Any, results: list[Any], before: Any) -> None:
        name = func._schema.name
        pointwise = (torch.Tag.pointwise in func.tags or name in _CAST_OPERATORS) and name not in _CANCELLING_OPERATORS
        eps = next(_computing_eps(own.dtype) for own in results if _is_roundable(own))
        units = _POINTWISE_UNITS if pointwise else _REDUCTION_UNITS
        others = None if pointwise else pytree.tree_map(lambda value: self._perturb(value, units * eps), before)
        true = _in_float64(func, before)
        moved = true if others is None else _in_float64(func, others)
        is_exact = pointwise or _adds_whole_numbers(name, before)
        for own, exact, other in zip(results, true or (), moved or (), strict=False):
            if _is_roundable(own) and own.shape == exact.shape:
                # float64 cannot check itself, so there only whole numbers count as exact
                stays = exact == (exact.round() if own.dtype is torch.float64 else own)
                if not is_exact and not _is_selection(own, stays, before):
                    stays &= other == exact
                own.copy_(torch.where(stays, exact, self._rounded(own, other, units)))

    def _perturb(self, value: Any, share: float) -> Any:
        """An operand moved by a few units: for a sum this has the effect of another order of summation."""
        if not isinstance(value, torch.Tensor) or not _is_number(value):
            return value
        return value * (1 + self._uniform(value, -share, share))

    def _rounded(self, own: torch.Tensor, other: torch.Tensor, units: float) -> torch.Tensor:
        """A result that other rounding might have given."""
        if own.is_complex():
            parts = [torch.view_as_real(each.resolve_conj()) for each in (own, other)]
            return torch.view_as_complex(self._rounded(parts[0], parts[1], units))
        value = other * (1 + self._uniform(other, -units, units) * _computing_eps(own.dtype))
        return value + self._uniform(value, -0.5, 0.5) * _ulp(value, own.dtype)

    def _uniform(self, like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        values = torch.empty(like.shape, dtype=torch.float64)
        return values.uniform_(low, high, generator=self._generator).to(like.device)


def _computes_values(func: Any, arguments: Any) -> bool:
    """Whether an operator computes new values from tensors: not a view, and not a draw of random numbers."""
    schema = func._schema
    if torch.Tag.nondeterministic_seeded in func.tags:
        return False
    views = any(value.alias_info is not None and not value.alias_info.is_write for value in schema.returns)
    return not views and any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(arguments))


def _float64_copy(value: Any) -> Any:
    """The argument in float64 and in its own memory, since operators may write to their arguments."""
    wide = argument_to_float64(value)
    return wide.clone() if isinstance(wide, torch.Tensor) and wide is value else wide


def _in_float64(func: Any, arguments: Any) -> list[Any] | None:
    """The tensors that the operator returns or writes in float64; ``None`` if it has no float64 version."""
    args, kwargs = arguments
    try:
        with default_dtype(torch.float64):
            result = func(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError):  # the operator has no float64 version
        return None
    return written_tensors(func, result, arguments)


def _is_number(tensor: torch.Tensor) -> bool:
    """Whether it has floating numbers; types of 8 bits are for storage, and have no operators."""
    return (tensor.is_floating_point() or tensor.is_complex()) and tensor.element_size() > 1


def _overlaps_itself(value: Any) -> bool:
    """Whether elements share memory. After a write it is undefined whose value such memory holds."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    reach = 0  # the largest offset within the dimensions of smaller stride
    for stride, size in sorted(pair for pair in zip(value.stride(), value.shape, strict=True) if pair[1] > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _is_roundable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and _is_number(value)


def _computing_eps(dtype: torch.dtype) -> float:
    """The machine epsilon of the type that operators compute in: 16-bit types are only for storage."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).eps


def _ulp(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring values of ``dtype`` at each value."""
    exponent = torch.frexp(value).exponent - 1
    return torch.ldexp(torch.full_like(value, torch.finfo(dtype).eps), exponent)


def _adds_whole_numbers(name: str, arguments: Any) -> bool:
    """Whether an operator adds and multiplies whole numbers alone: no order of summation rounds those."""
    is_dividing = not set(name.partition("::")[2].split("_")).isdisjoint(_DIVIDING_OPERATORS)
    tensors = [each for each in pytree.tree_leaves(arguments) if isinstance(each, torch.Tensor) and _is_number(each)]
    return not is_dividing and all(not each.is_complex() and bool((each == each.round()).all()) for each in tensors)


def _is_selection(own: torch.Tensor, is_exact: torch.Tensor, arguments: Any) -> bool:
    """Whether each element of a result is one of an operand, or fills a gap, as that of a maximum or of padding."""
    if own.is_complex() or not bool(is_exact.all()):
        return False
    tensors = [each for each in pytree.tree_leaves(arguments) if isinstance(each, torch.Tensor) and _is_number(each)]
    known = torch.cat([own.new_zeros(1, dtype=torch.float64), *(each.real.double().reshape(-1) for each in tensors)])
    return bool(torch.isin(own.double(), known).all())
