"""Compares each compiled call with the same call uncompiled: same inputs, same random numbers.

The uncompiled call runs on copies of the inputs. Parameters, buffers and other tensors that the function can reach are
restored afterwards. It compares the values, dtypes, shapes, strides and aliasing of every output and the inputs after
the call. If the outputs can be differentiated, it also compares the gradient of every input and parameter. A float64
run decides whether a difference is rounding (`fp64_oracle`). The first difference that is not rounding ends the trial.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import Note, WrongResult, run_facts
from dynadiag.trial.fp64_oracle import ResultDifference, compare_runs
from dynadiag.trial.outcome import NOT_RAISED
from dynadiag.trial.rank import this_rank
from dynadiag.trial.reference_run import ReplayableCall, RunResult, run_call
from dynadiag.trial.signature import Signature, signature_of, witness_of

_active: list[bool] = []  # not empty while a call is compared: a nested compiled call is not compared again


def call_and_compare(
    compiled: Callable[..., Any],
    original: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    values: bool = True,
) -> Any:
    """Make the compiled call, compare it with the uncompiled call, and return its result. Ends the process if it is
    wrong.

    With ``values=False`` only two things are wrong: the compiled call returns where the uncompiled one raises, and an
    output of another structure or dtype. That is all that can be compared if the two draw different random numbers.
    """
    if _active or torch.compiler.is_compiling():
        return compiled(*args, **kwargs)
    _active.append(True)
    try:
        return _compare(ReplayableCall(original, args, kwargs), compiled, values)
    finally:
        _active.pop()


def _compare(call: ReplayableCall, compiled: Callable[..., Any], values: bool) -> Any:
    expected = run_call(call, call.function, call.copies())
    if expected.gradients is not None:
        # A call of its own: differentiating the program's call would free its autograd graph.
        _check(call, expected, run_call(call, compiled, call.copies()), values)
    call.restore()
    actual = run_call(call, compiled, (call.args, call.kwargs), differentiate=False)
    _check(call, expected, actual, values)
    if actual.error is not None:
        raise actual.error
    return actual.result


def _check(call: ReplayableCall, expected: RunResult, actual: RunResult, values: bool) -> None:
    raised = actual.error or actual.backward_error
    if raised is not None and expected.error is None:
        _end_trial(signature_of(raised, TRIAL.plan.rung), witness_of(raised))
    if expected.error is not None:
        if actual.error is None:
            kind = type(expected.error).__name__
            _end_trial(_wrong_result(call, f"uncompiled raises {kind}{NOT_RAISED}{expected.error}"))
        return
    found = compare_runs(call, expected, actual, TRIAL.plan.tolerance, values=values)
    for difference in found:
        if not difference.rounding:
            _end_trial(_wrong_result(call, difference.text, difference))
    for difference in found:
        TRIAL.send(Note(difference.text))


def _wrong_result(call: ReplayableCall, text: str, difference: ResultDifference | None = None) -> Signature:
    kind = difference.kind if difference else "wrong_result"
    message = f"{call.name}: {text}"
    return Signature(kind, kind, message, user=_program_line(), cause=kind, rung=TRIAL.plan.rung)


def _program_line() -> str | None:
    """The line of the main program that made the call, as ``FILE:LINE``."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != main:
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else None


def _end_trial(signature: Signature, witness: tuple[str, ...] = ()) -> NoReturn:
    """Report the failure and end the trial: what the program does with a wrong result does not matter."""
    TRIAL.send(WrongResult(replace(signature, rank=this_rank()), run_facts(), witness))
    os._exit(1)
