"""Each compiled call against its uncompiled self: same inputs, same random numbers, float64 as the referee.

The uncompiled arm runs on copies of the inputs; parameters, buffers and other tensors that the function can reach
are put back afterwards. Compared are values, dtype, shape, strides and aliasing of every output, what became of
the inputs, and, where the outputs can be differentiated, the gradient of every input and parameter. The first
difference that float64 sides against ends the trial.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from dynadiag.trial import failure
from dynadiag.trial.arms import Arm, Call, run_arm
from dynadiag.trial.facts import facts
from dynadiag.trial.referee import Difference, differences
from dynadiag.trial.runtime import TRIAL
from dynadiag.trial.signature import Signature

__all__ = ["compared_call"]

_busy: list[bool] = []  # a compiled function may call another: the outermost is the one compared


def compared_call(
    compiled: Callable[..., Any],
    original: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    values: bool = True,
) -> Any:
    """What the compiled call returns, after it was compared. Ends the process where it is wrong.

    Without ``values`` it is wrong only where it returns and the uncompiled one raises, or returns something of another
    form: that is all that can be said where each draws its own random numbers.
    """
    if _busy or torch.compiler.is_compiling():
        return compiled(*args, **kwargs)
    _busy.append(True)
    try:
        return _compared(Call(original, args, kwargs), compiled, values)
    finally:
        _busy.pop()


def _compared(call: Call, compiled: Callable[..., Any], values: bool) -> Any:
    expected = run_arm(call, call.function, call.copies())
    if expected.gradients is not None:
        # The program's own call is not differentiated by us: its graph is the program's to use up.
        _judge(call, expected, run_arm(call, compiled, call.copies()), values)
    call.restore()
    actual = run_arm(call, compiled, (call.args, call.kwargs), differentiate=False)
    _judge(call, expected, actual, values)
    if actual.error is not None:
        raise actual.error
    return actual.result


def _judge(call: Call, expected: Arm, actual: Arm, values: bool) -> None:
    raised = actual.error or actual.underivable
    if raised is not None and expected.error is None:
        _end(failure.of_exception(raised, TRIAL.plan.rung), failure.witness_of(raised))
    if expected.error is not None:
        if actual.error is None:
            kind = type(expected.error).__name__
            _end(_wrong(call, f"uncompiled raises {kind}: {expected.error}; compiled returns"))
        return
    found = differences(call, expected, actual, TRIAL.plan.tolerance, values=values)
    for difference in found:
        if not difference.rounding:
            _end(_wrong(call, difference.text, difference))
    for difference in found:
        TRIAL.send("note", text=difference.text)


def _wrong(call: Call, text: str, difference: Difference | None = None) -> Signature:
    kind = difference.kind if difference else "wrong_result"
    message = f"{call.name}: {text}"
    return Signature(kind, kind, message, user=_program_line(), cause=kind, rung=TRIAL.plan.rung)


def _program_line() -> str | None:
    """The line of the main program from which the call was made."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != main:
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else None


def _end(signature: Signature, witness: tuple[str, ...] = ()) -> NoReturn:
    """Ends the trial: what the program would do with a wrong result says nothing more."""
    TRIAL.send("wrong", failure=signature.to_json(), witness=witness, facts=facts())
    os._exit(1)
