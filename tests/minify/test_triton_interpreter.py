"""A failure of the triton rung on a machine without a GPU is refused with the reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from dynadiag.bisection.budget import SearchBudget
from dynadiag.bisection.failing_rung import BisectOptions, FailingRung
from dynadiag.minify.minify_result import result_text
from dynadiag.minify.minimizer import MinifyRequest, _Minimizer
from dynadiag.render.printer import Printer
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature


def test_a_failure_in_the_interpreter_is_told_and_not_reduced() -> None:
    failed = Outcome(Signature("exception", "AssertionError", "not close", rung="triton"), 1.0)
    located = FailingRung(failed, "triton", failed, {"triton": "same"})
    runner = SimpleNamespace(interpret=True)
    search = cast(Any, SimpleNamespace(runner=runner, reference=None, budget=SearchBudget()))
    result = _Minimizer(search, MinifyRequest(BisectOptions(), Path("repro.py")))._after_ladder(located)
    assert (result.rung, result.exit_code) == ("triton", 6)
    assert "interpreter" in result_text(result, Printer())
