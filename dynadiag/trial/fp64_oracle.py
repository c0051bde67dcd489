"""Decides whether a difference between two runs is rounding or a wrong result, with float64 as the oracle.

A compiler may round in other places than eager does: a kernel that keeps float32 where eager stores float16 is closer
to the true value, not wrong. So if two results differ by more than the tolerance, the function runs again in float64,
and a few times with random rounding in every operator. A compiled value is wrong if its distance from the float64
result exceeds the tolerance, eager's own error, and what such rounding explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dynadiag.trial.float64 import is_operator, run_branches_under, run_in_float64, to_float64
from dynadiag.trial.outcome import ROUNDING
from dynadiag.trial.reference_run import ReplayableCall, RunResult, run_call
from dynadiag.trial.rounding import StochasticRounding

# (rtol, atol) of each dtype, as in torch.testing.assert_close.
_TOLERANCE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.complex128: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
}
_INF = float("inf")
_NOT_THE_SAME = "float64 is no referee: run operator by operator, uncompiled code gives something else too"
_ERROR_FACTOR = 4.0  # the allowed error, as a multiple of the largest error of eager and of the samples of rounding
_MIN_SAMPLES = 4
_MAX_SAMPLES = 64  # chance decides on which side of a threshold a value falls, so more samples may be needed
_MAX_SUSPECTS_LEFT = 0.9  # share of suspects left after doubling the samples, beyond which more samples do not help


@dataclass(frozen=True, slots=True)
class ResultDifference:
    """One difference in words. ``rounding`` is true if float64 does not contradict the compiled value."""

    text: str
    rounding: bool
    kind: str = "wrong_result"  # or "nan"


@dataclass(frozen=True, slots=True)
class _ComparedValue:
    """One value of both runs. ``pick`` selects the same value from another run."""

    name: str
    expected: Any
    actual: Any
    pick: Callable[[RunResult], Any]


def compare_runs(
    call: ReplayableCall,
    expected: RunResult,
    actual: RunResult,
    tolerance: tuple[float, float] | None,
    *,
    values: bool = True,
) -> list[ResultDifference]:
    """Every difference of the compiled run ``actual`` from ``expected``. With ``values=False`` only structure and
    dtypes.

    ``tolerance`` is (rtol, atol), or ``None`` for the defaults of each dtype.
    """
    structure = _structure_difference(expected, actual)
    if structure is not None:
        return [ResultDifference(structure, rounding=False)]
    apart = [pair for pair in _compared_values(call, expected, actual) if not _close(pair, tolerance)] if values else []
    oracle = _Oracle(call)
    found = [_judge(pair, oracle, tolerance) for pair in apart]
    form = _form_difference(call, expected, actual) if all(difference.rounding for difference in found) else None
    return [*found, ResultDifference(form, rounding=False)] if form is not None else found


def _structure_difference(expected: RunResult, actual: RunResult) -> str | None:
    """A difference in the number of outputs, or in what each is, so that values cannot be compared."""
    if len(expected.outputs) != len(actual.outputs):
        return f"{len(actual.outputs)} outputs instead of {len(expected.outputs)}"
    return _first_difference(_type_difference, expected, actual)


def _form_difference(call: ReplayableCall, expected: RunResult, actual: RunResult) -> str | None:
    """A difference that equal values do not show: gradients, strides, shared memory. A wrong value says more."""
    if (text := _first_difference(_layout_difference, expected, actual)) is not None:
        return text
    names = [*call.input_names, *(f"output {i}" for i in range(len(actual.outputs)))]
    pairs = enumerate(zip(shared_memory(expected), shared_memory(actual), strict=True))
    other = next(((i, was, now) for i, (was, now) in pairs if was != now), None)
    if other is not None:
        i, was, now = other
        if now is None:
            return f"output {i} and {names[was or 0]} do not share memory; uncompiled they do"
        return f"output {i} and {names[now]} share memory; uncompiled they do not"
    changed = enumerate(zip(expected.shared, actual.shared, strict=True))
    state = [(i, call.state_name(now)) for i, (was, now) in changed if now is not None and now != was]
    return f"output {state[0][0]} and {state[0][1]} share memory; uncompiled they do not" if state else None


def _first_difference(
    difference: Callable[[Any, Any], str | None], expected: RunResult, actual: RunResult
) -> str | None:
    texts = ((i, difference(e, a)) for i, (e, a) in enumerate(zip(expected.outputs, actual.outputs, strict=True)))
    return next((f"output {i}: {text}" for i, text in texts if text), None)


def _type_difference(expected: Any, actual: Any) -> str | None:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = isinstance(expected, torch.Tensor) == isinstance(actual, torch.Tensor)
        return None if same else f"{type(actual).__name__} instead of {type(expected).__name__}"
    return _attribute_difference(expected, actual, "dtype", "shape", "device")


def _layout_difference(expected: Any, actual: Any) -> str | None:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return None
    if (text := _attribute_difference(expected, actual, "requires_grad")) is not None:
        return text
    if expected.layout is torch.strided and actual.layout is torch.strided and expected.numel() > 1:
        e_strides, a_strides = effective_strides(expected), effective_strides(actual)
        if e_strides != a_strides:
            return f"strides {a_strides} instead of {e_strides}"
    return None


def _attribute_difference(expected: torch.Tensor, actual: torch.Tensor, *names: str) -> str | None:
    pairs = ((name, getattr(expected, name), getattr(actual, name)) for name in names)
    return next((f"{name} {a} instead of {e}" for name, e, a in pairs if e != a), None)


def effective_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of dimensions larger than 1: the others have no effect."""
    return tuple(s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1)


def shared_memory(run: RunResult) -> list[int | None]:
    """For each output, the position of the first input or earlier output that shares its memory, or ``None``."""
    memory: dict[int, int] = {}
    shared: list[int | None] = []
    for position, value in enumerate([*run.inputs, *run.outputs]):
        known = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel() > 0
        key = value.untyped_storage().data_ptr() if known else -1 - position
        shared.append(memory.get(key))
        memory.setdefault(key, position)
    return shared[len(run.inputs) :]


def _compared_values(call: ReplayableCall, expected: RunResult, actual: RunResult) -> list[_ComparedValue]:
    pairs = [
        _ComparedValue(f"output {i}", e, a, lambda run, i=i: run.outputs[i])  # type: ignore[misc]
        for i, (e, a) in enumerate(zip(expected.outputs, actual.outputs, strict=True))
    ]
    pairs += [
        _ComparedValue(f"{call.input_names[i]} afterwards", e, a, lambda run, i=i: run.inputs[i])  # type: ignore[misc]
        for i, (e, a) in enumerate(zip(expected.inputs, actual.inputs, strict=True))
    ]
    pairs += [
        _ComparedValue(f"{call.state_name(i)} afterwards", e, a, lambda run, i=i: run.state[i])  # type: ignore[misc]
        for i, (e, a) in enumerate(_state_pairs(call, expected, actual))
    ]
    for i, (e, a) in enumerate(zip(expected.gradients or (), actual.gradients or (), strict=False)):
        name = f"gradient of {call.gradient_names[i]}" if i < len(call.gradient_names) else f"gradient {i}"
        pairs.append(_ComparedValue(name, *_gradient_pair(e, a), lambda run, i=i: (run.gradients or ())[i]))  # type: ignore[misc]
    return pairs


def _state_pairs(
    call: ReplayableCall, expected: RunResult, actual: RunResult
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of reachable tensors. New tensors count only if both runs made the same number of them, with the same
    shapes and dtypes.

    An uncompiled program may keep more tensors than a compiled one.
    """
    pairs = list(zip(expected.state, actual.state, strict=False))
    new = pairs[len(call.state) :]
    alike = len(expected.state) == len(actual.state) and all((e.shape, e.dtype) == (a.shape, a.dtype) for e, a in new)
    return pairs if alike else pairs[: len(call.state)]


def _gradient_pair(expected: torch.Tensor | None, actual: torch.Tensor | None) -> tuple[Any, Any]:
    """A missing gradient counts as zeros."""
    if expected is None and actual is not None:
        return torch.zeros_like(actual), actual
    if actual is None and expected is not None:
        return expected, torch.zeros_like(expected)
    return expected, actual


def _tolerances(dtype: torch.dtype, tolerance: tuple[float, float] | None) -> tuple[float, float]:
    return tolerance or _TOLERANCE.get(dtype, (0.0, 0.0))


def _close(pair: _ComparedValue, tolerance: tuple[float, float] | None) -> bool:
    e, a = pair.expected, pair.actual
    if isinstance(e, torch.Tensor) and isinstance(a, torch.Tensor):
        if e.shape != a.shape:
            return False
        rtol, atol = _tolerances(e.dtype, tolerance)
        e, a = _to_dense(e), _to_dense(a)
        return bool(torch.isclose(a, e, rtol, atol, equal_nan=True).all())
    if isinstance(e, float) and isinstance(a, (int, float)):
        return _close(_ComparedValue(pair.name, torch.tensor(e), torch.tensor(float(a)), pair.pick), tolerance)
    return not isinstance(e, (int, str, bool)) or e == a


def _to_dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _judge(pair: _ComparedValue, oracle: _Oracle, tolerance: tuple[float, float] | None) -> ResultDifference:
    """The difference in words, and whether float64 calls it rounding."""
    e, a = pair.expected, pair.actual
    if not isinstance(e, torch.Tensor) or not isinstance(a, torch.Tensor) or e.shape != a.shape:
        return ResultDifference(f"{pair.name}: {a!r:.80} instead of {e!r:.80}", rounding=False)
    e, a = _to_dense(e), _to_dense(a)
    values = to_float64(e), to_float64(a)
    rtol, atol = _tolerances(e.dtype, tolerance)
    truth = oracle.value(pair.pick)
    if truth is None:
        return ResultDifference(
            _describe(pair.name, *values, atol, rtol) + "; the function does not run in float64", rounding=False
        )
    bad = beyond_rounding(values, truth, oracle.samples(pair.pick), (rtol, atol))
    text = _describe(pair.name, *values, atol, rtol)
    if not bool(bad.any()):
        is_same = not oracle.changes_eager(pair.pick, values[0], (rtol, atol))
        return ResultDifference(f"{text}; {ROUNDING if is_same else _NOT_THE_SAME}", rounding=is_same)
    if not oracle.judges(e):
        return ResultDifference(f"{text}; float64 is no referee: they are integers made of integers", rounding=False)
    kind = "nan" if _only_compiled_is_not_finite(*values, truth) else "wrong_result"
    return ResultDifference(f"{text}; a float64 run finds {int(bad.sum())} of them wrong", rounding=False, kind=kind)


def _only_compiled_is_not_finite(e: torch.Tensor, a: torch.Tensor, truth: torch.Tensor) -> bool:
    return bool((~a.isfinite() & e.isfinite() & truth.isfinite()).any())


def beyond_rounding(
    values: tuple[torch.Tensor, torch.Tensor],
    truth: torch.Tensor,
    samples: Iterator[torch.Tensor],
    tolerance: tuple[float, float],
) -> torch.Tensor:
    """A mask of the elements that are further from the float64 result than rounding explains.

    The number of samples is doubled as long as more samples clear more suspects.
    """
    off = _error(values[0], truth)
    bad = _suspects(values, truth, off, tolerance)
    left, enough = int(bad.sum()), _MIN_SAMPLES
    for count in range(1, _MAX_SAMPLES + 1):
        if not bool(bad.any()) or (sample := next(samples, None)) is None:
            break
        off = torch.maximum(off, _error(sample, truth))
        bad = _suspects(values, truth, off, tolerance)
        if count == enough:
            if int(bad.sum()) > _MAX_SUSPECTS_LEFT * left:
                break
            left, enough = int(bad.sum()), 2 * enough
    return bad


def _error(value: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """The absolute error of each element: 0 where both are NaN or the same infinity, infinite where only one is."""
    agrees = (value == truth) | (value.isnan() & truth.isnan())
    return torch.where(agrees, 0.0, (value - truth).abs().nan_to_num(_INF, _INF))


def _suspects(
    values: tuple[torch.Tensor, torch.Tensor], truth: torch.Tensor, off: torch.Tensor, tolerance: tuple[float, float]
) -> torch.Tensor:
    expected, actual = values
    rtol, atol = tolerance
    apart = ~torch.isclose(actual, expected, rtol, atol, equal_nan=True)
    allowed = atol + rtol * truth.abs().nan_to_num(0.0) + _ERROR_FACTOR * off
    return apart & ~(_error(actual, truth) <= allowed)


def _describe(name: str, expected: torch.Tensor, actual: torch.Tensor, atol: float, rtol: float) -> str:
    apart = ~torch.isclose(actual, expected, rtol, atol, equal_nan=True)
    worst = (actual - expected).abs()[apart].nan_to_num(_INF, _INF).max().item() if bool(apart.any()) else 0.0
    count, total = int(apart.sum()), apart.numel()
    return f"{name} differs in {count} of {total} elements, by up to {worst:.3g} (rtol {rtol:g}, atol {atol:g})"


class _Oracle:
    """The same call in float64, and samples of what rounding does to it. Each runs when it is first needed."""

    def __init__(self, call: ReplayableCall) -> None:
        self._call = call
        self._float64_run: RunResult | None = None
        self._rounds_to_integers = False
        self._samples: list[RunResult] = []
        self._repeated: list[RunResult] = []

    def value(self, find: Callable[[RunResult], Any]) -> torch.Tensor | None:
        """The float64 value, or ``None`` if the function does not run in float64."""
        if self._float64_run is None:
            self._float64_run, self._rounds_to_integers = run_in_float64(self._call)
        return _picked(self._float64_run, find)

    def judges(self, value: torch.Tensor) -> bool:
        """Whether the float64 run, which was made, says anything about a value."""
        return value.is_floating_point() or value.is_complex() or self._rounds_to_integers

    def samples(self, find: Callable[[RunResult], Any]) -> Iterator[torch.Tensor]:
        """The value under random rounding, in up to `_MAX_SAMPLES` runs."""
        for position in range(_MAX_SAMPLES):
            if position == len(self._samples):
                self._samples.append(self._sample(position))
            found = _picked(self._samples[position], find)
            if found is not None:
                yield found

    def changes_eager(
        self, find: Callable[[RunResult], Any], expected: torch.Tensor, tolerance: tuple[float, float]
    ) -> bool:
        """Whether uncompiled code gives something else where a mode of torch sees its operators, as float64 and samples
        need it, by more than rounding: autograd has other formulas there, which may be the ones at fault.
        """
        if not self._repeated:
            self._repeated = [self._run_under(mode) for mode in (nullcontext(), _Watching())]
        again, watched = (_picked(run, find) for run in self._repeated)
        truth = self.value(find)
        if again is None or watched is None or truth is None:
            return False
        repeats = bool(torch.isclose(again, expected, *tolerance, equal_nan=True).all())
        return repeats and bool(beyond_rounding((watched, expected), truth, self.samples(find), tolerance).any())

    def _sample(self, seed: int) -> RunResult:
        return self._run_under(StochasticRounding(seed))

    def _run_under(self, mode: AbstractContextManager[object]) -> RunResult:
        arguments = self._call.copies()
        with mode:
            return run_call(self._call, self._call.function, arguments)


class _Watching(TorchDispatchMode):
    """Sees each operator, and changes nothing."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_operator(func):
            return run_branches_under(self, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _picked(run: RunResult, find: Callable[[RunResult], Any]) -> torch.Tensor | None:
    if run.error is not None:
        return None
    try:
        value = find(run)
    except IndexError:
        return None
    return to_float64(_to_dense(value)) if isinstance(value, torch.Tensor) else None
