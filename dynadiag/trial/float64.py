"""Runs a call in float64, so that its results have hardly any rounding.

Every operator runs in float64, also where the program casts to a narrower type, since casts round. Random numbers are
drawn in the program's own types, because float64 would draw other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dynadiag.trial.reference_run import ReplayableCall, RunResult, run_call, tensors_in

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
# Operators that only draw numbers. Dropout is not among them: it draws the same mask for every dtype.
_RANDOM_OPERATORS = re.compile("aten::(rand|normal|bernoulli|uniform|exponential|geometric|cauchy|log_normal|poisson)")


def run_in_float64(call: ReplayableCall) -> tuple[RunResult, bool]:
    """Run the uncompiled function in float64. Also returns whether an integer was computed from a floating number: only
    then does the run say anything about integers.
    """
    arguments = float64_copies(call.copies())
    given = most_precise((*tensors_in((call.args, call.kwargs)), *call.state))
    mode = _Float64Mode(torch.get_default_dtype(), given)
    with _float64_state(call):
        return run_call(call, _under_mode(call.function, mode), arguments), mode.rounds_to_integers


def to_float64(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as float64, or complex128 where it is complex."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def argument_to_float64(value: Any) -> Any:
    """An operator's argument in float64 or complex128; a dtype becomes the wider dtype; anything else stays."""
    if isinstance(value, torch.dtype):
        return _WIDER.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in _WIDER:
        wide = value.to(_WIDER[value.dtype])
        # An operator such as as_strided_copy reads memory by the layout, and what lies between the elements.
        has_layout = value.layout is not torch.strided or wide.stride() == value.stride()
        return wide if has_layout else _Float64Copier().copied(value)
    return value


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make ``dtype`` the default of new floating-point tensors inside the context."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def written_tensors(func: Any, result: Any, arguments: Any) -> list[Any]:
    """The tensors that an operator wrote or returned, in an order that is the same for every call of it.

    ``arguments`` is ``(args, kwargs)``. For a functional operator these are its results, for a mutating one its written
    arguments, then its new results.
    """
    schema = func._schema
    if not schema.is_mutable:
        return pytree.tree_leaves(result)
    args, kwargs = arguments
    given = {**dict(zip((a.name for a in schema.arguments), args, strict=False)), **kwargs}
    targets = [given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    results = result if isinstance(result, (tuple, list)) else (result,)
    new = [r for r, returned in zip(results, schema.returns, strict=False) if returned.alias_info is None]
    return pytree.tree_leaves((targets, new))


def is_operator(func: Any) -> bool:
    """Whether ``func`` is a plain operator. Conditionals, loops and other higher-order operators have no schema."""
    return getattr(func, "_schema", None) is not None


def run_branches_under(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Call a conditional or a loop so that the functions it is given run under ``mode`` too."""

    def entering(value: Any) -> Any:
        if not isinstance(value, (BuiltinFunctionType, FunctionType, MethodType, torch.nn.Module)):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            with mode:
                return value(*args, **kwargs)

        return call

    args, kwargs = pytree.tree_map(entering, (args, kwargs))
    return func(*args, **kwargs)


class _Float64Copier:
    """Copies inputs to float64. Tensors that share storage share it in the copies too, so that writes show through
    views.
    """

    def __init__(self) -> None:
        # The source is kept with its copy: another storage would get the address of one that is freed.
        self._storages: dict[tuple[int, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not _is_floating(leaf):
            return leaf
        return self.copied(leaf).requires_grad_(leaf.requires_grad)

    def copied(self, leaf: torch.Tensor) -> torch.Tensor:
        """The copy of one tensor, which requires no gradient."""
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided or leaf.is_conj():
            return to_float64(leaf.detach())
        flat = self._whole_storage(leaf.detach())
        with torch.no_grad():
            copy = torch.empty(0, dtype=flat.dtype, device=flat.device)
            copy.set_(flat.untyped_storage(), leaf.storage_offset(), leaf.size(), leaf.stride())
        return copy

    def _whole_storage(self, leaf: torch.Tensor) -> torch.Tensor:
        """The whole storage of a tensor, as one float64 tensor."""
        key = leaf.untyped_storage()._cdata, leaf.dtype
        if key not in self._storages:
            count = leaf.untyped_storage().nbytes() // leaf.element_size()
            whole = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
            whole.set_(leaf.untyped_storage(), 0, (count,), (1,))
            self._storages[key] = leaf, _float64_copy(whole).clone()
        return self._storages[key][1]


def _float64_copy(leaf: torch.Tensor) -> torch.Tensor:
    if not _is_floating(leaf):
        return leaf
    return to_float64(leaf.detach()).requires_grad_(leaf.requires_grad)


@contextmanager
def _float64_state(call: ReplayableCall) -> Any:
    """Parameters and buffers in float64 inside the context."""
    narrow = [t.data for t in call.state]
    saved, call._saved_state = call._saved_state, [_float64_copy(t).detach() for t in call._saved_state]
    try:
        for tensor, wide in zip(call.state, call._saved_state, strict=True):
            tensor.data = wide.clone()
        yield
    finally:
        call._saved_state = saved
        for tensor, data in zip(call.state, narrow, strict=True):
            tensor.data = data
        call.restore()


def most_precise(tensors: Iterable[torch.Tensor]) -> torch.dtype:
    """Return the most precise floating dtype among tensors."""
    given = (t.dtype for t in tensors if t.is_floating_point())
    return min(given, key=lambda dtype: torch.finfo(dtype).eps, default=torch.get_default_dtype())


def _is_floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _under_mode(function: Callable[..., Any], mode: _Float64Mode) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with default_dtype(torch.float64), mode:
            return function(*args, **kwargs)

    return call


@contextmanager
def float64_operators(precision: torch.dtype) -> Iterator[None]:
    """Run every operator inside the context in float64. Random numbers are drawn in ``precision``."""
    mode = _Float64Mode(torch.get_default_dtype(), precision)
    with default_dtype(torch.float64), mode:
        yield


def float64_copies(values: Any) -> Any:
    """Copies in float64 of the tensors in nested containers. Those that share storage share it in the copies too."""
    return pytree.tree_map(_Float64Copier(), values)


class _Float64Mode(TorchDispatchMode):
    """Runs every operator in float64.

    ``default`` is the program's default dtype, ``precision`` the dtype in which random numbers are drawn for widened
    tensors. ``rounds_to_integers`` says whether an operator made integers of floating numbers.
    """

    supports_higher_order_operators = True

    def __init__(self, own: torch.dtype, precision: torch.dtype) -> None:
        super().__init__()
        self._default, self._precision = own, precision
        self.rounds_to_integers = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_operator(func):
            return run_branches_under(self, func, args, kwargs)
        if _RANDOM_OPERATORS.match(func._schema.name):
            return self._draw(func, args, kwargs)
        args, kwargs = pytree.tree_map(argument_to_float64, (args, kwargs))
        result = func(*args, **kwargs)
        self.rounds_to_integers |= any(map(_is_floating, tensors_in((args, kwargs)))) and not all(
            map(_is_floating, tensors_in(result))
        )
        return result

    def _draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Draw random numbers in the program's own types, then widen them."""
        narrow = pytree.tree_map(self._to_program_precision, (args, kwargs))
        with default_dtype(self._default):
            result = func(*narrow[0], **narrow[1])
        if not func._schema.is_mutable:
            return pytree.tree_map(argument_to_float64, result)
        drawn = zip(written_tensors(func, args[0], (args, kwargs)), written_tensors(func, result, narrow), strict=True)
        for target, values in drawn:
            target.copy_(values)
        return args[0]

    def _to_program_precision(self, value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.dtype is torch.float64
        return value.to(self._precision) if floating else value
