"""Bisects a repro, to name the culprit in its header. The repro is small, so this takes seconds."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.bisection.bisector import bisect
from dynadiag.bisection.budget import SearchBudget
from dynadiag.bisection.failing_rung import BisectOptions
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.bisection.verdict import Verdict
from dynadiag.minify.minify_result import MinifyResult, culprit_names
from dynadiag.minify.repro_header import add_header_line
from dynadiag.minify.repro_trial_log import ReproTrialLog, repro_reporter
from dynadiag.trial.program import Program

__all__ = ["bisect_repro"]

_TRIAL_TIMEOUT = 30.0  # seconds for one trial: a repro compiles only a few operations
_TOTAL_TIMEOUT = 120.0  # for all trials together
_NOT_IN_TIME = "the repro is not bisected: it takes too long on this machine"
_NO_CULPRIT = "bisecting the repro finds no culprit below its rung"


def bisect_repro(search: TrialSearch, program: Program, rows: ReproTrialLog, result: MinifyResult) -> MinifyResult:
    """Bisect the repro, and add the culprits to the result and to the header of its text.

    ``program`` is the repro as a file. If nothing is found in time, or trials cannot be forked, a note says so.
    """
    verdict = _verdict(search, program, rows) if search.runner.has_forks else None
    if verdict is None or not verdict.culprits:
        return replace(result, notes=(*result.notes, _NOT_IN_TIME if verdict is None else _NO_CULPRIT))
    text = add_header_line(result.text, f"bisected: {culprit_names(verdict)}")
    return replace(result, bisect_verdict=verdict, text=text)


def _verdict(search: TrialSearch, program: Program, rows: ReproTrialLog) -> Verdict | None:
    """The verdict of the bisection; None if it takes too long."""
    search.on_message("bisecting the repro")
    with search.runner.for_program(program) as runner:
        runner.limits = replace(runner.limits, seconds=min(runner.limits.seconds, _TRIAL_TIMEOUT))
        budget = SearchBudget(_TOTAL_TIMEOUT)
        repro = TrialSearch(runner, rows, repro_reporter(search), repeat=search.repeat, budget=budget)
        verdict = bisect(repro, BisectOptions(repeat=search.repeat))
    return None if verdict.verdict == "stopped" else verdict
