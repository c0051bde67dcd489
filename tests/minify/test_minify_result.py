from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from dynadiag.minify.minify_result import MinifyResult, result_text
from dynadiag.minify.minimizer import _ReductionListener
from dynadiag.minify.reduction_task import CandidateTried, GraphCaptured
from dynadiag.render.printer import Printer
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature


def test_a_trial_of_one_operation_is_told_as_one() -> None:
    told: list[Any] = []
    log = SimpleNamespace(count=1, add=lambda *_: None)
    search = SimpleNamespace(log=log, on_message=told.append, on_trial=lambda *trial: told.append(trial[1]))
    listener = _ReductionListener(cast("Any", search))
    listener.on_event(GraphCaptured(1))
    for size in (1, 2):
        listener.on_event(CandidateTried(str(size), "witness", size, "pass", Outcome(None, 1.0)))
    assert told == ["the failing graph has 1 operation; reducing it", "witness: 1 operation", "witness: 2 operations"]
    listener.on_event(CandidateTried("3", "text 1", 4, "pass", Outcome(None, 1.0), best=2, cached=3, seconds_left=12.4))
    assert told[-1] == "text 1: 4 lines, best 2, 3 cached, 12 s left"


def test_a_report_without_a_repro_says_how_the_program_fails_and_that_there_is_no_stdin() -> None:
    failure = Signature("exception", "EOFError", "EOF when reading a line", cause="EOFError")
    text = result_text(MinifyResult("fails_uncompiled", failure=failure), Printer(100))
    assert "= failure: EOFError: EOF when reading a line" in text
    assert "= help: stdin is empty in a trial" in text
