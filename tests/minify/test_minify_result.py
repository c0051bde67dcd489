from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from dynadiag.bisection.verdict import Culprit, Verdict
from dynadiag.minify.minify_result import MinifyResult, issue_text, result_text
from dynadiag.minify.minimizer import _ReductionListener
from dynadiag.minify.reduction_task import CandidateTried, GraphCaptured
from dynadiag.render.printer import Printer
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature

RESULT = MinifyResult(
    "reduced",
    rung="inductor",
    failure=Signature("exception", "InductorError", "no lowering in /home/somebody/lib/x.py"),
    text="import torch\n",
    nodes_before=40,
    nodes_after=1,
    torch="2.13.0",
    proof=("uncompiled: passes",),
    printed='Traceback\n  File "/home/somebody/work/repro.py", line 3\n``` \x1b[31mred',
)


def test_a_report_names_no_folder_and_no_fence_is_closed_early() -> None:
    text = issue_text(RESULT)
    assert "/home" not in text
    assert "\x1b" not in text
    assert "````text" in text
    assert "The program below is reduced: 40 -> 1 operation;" in text


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


def test_a_report_says_what_bisection_found() -> None:
    lowering = Culprit("lowering", "relu", "0/0", "backward")
    found = Verdict("found", {}, "inductor", culprits=(lowering,), confirmed=("with exactly relu off it passes",))
    text = issue_text(replace(RESULT, bisect_verdict=found))
    assert ". Bisected to `lowering relu (backward); with exactly relu off it passes`." in text


def test_a_report_without_a_repro_says_how_the_program_fails_and_that_there_is_no_stdin() -> None:
    failure = Signature("exception", "EOFError", "EOF when reading a line", cause="EOFError")
    text = result_text(MinifyResult("fails_uncompiled", failure=failure), Printer(100))
    assert "= failure: EOFError: EOF when reading a line" in text
    assert "= help: stdin is empty in a trial" in text
