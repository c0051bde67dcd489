"""What bisection says of a repro, for its header: the program is small, so that it takes seconds."""

from __future__ import annotations

import time
from dataclasses import replace

from dynadiag.bisect.bisector import bisect
from dynadiag.bisect.failing_rung import BisectOptions
from dynadiag.bisect.trial_search import TrialSearch
from dynadiag.bisect.verdict import Verdict
from dynadiag.minify.minify_result import MinifyResult, culprit_names
from dynadiag.minify.repro_text import add_header_line
from dynadiag.minify.repro_trial_log import ReproTrialLog, repro_reporter
from dynadiag.trial.program import Program

__all__ = ["bisect_repro"]

_TRIAL_TIMEOUT = 30.0  # seconds; a fork of a repro compiles a few operations
_TOTAL_TIMEOUT = 120.0  # of all trials together
_NOT_IN_TIME = "the repro is not bisected: that takes too long here"
_NO_CULPRIT = "bisecting the repro names nothing below its rung"


class _OutOfTimeError(Exception):
    """Raised between two trials."""


def bisect_repro(search: TrialSearch, program: Program, rows: ReproTrialLog, result: MinifyResult) -> MinifyResult:
    """The result with what is at fault in ``program``, its text, and with that in the comment at the text's top.

    Where it is not found in time, or fresh interpreters would have to look for it, the result says so.
    """
    verdict = _verdict(search, program, rows) if search.runner.has_forks else None
    if verdict is None or not verdict.culprits:
        return replace(result, notes=(*result.notes, _NOT_IN_TIME if verdict is None else _NO_CULPRIT))
    text = add_header_line(result.text, f"bisected: {culprit_names(verdict)}")
    return replace(result, bisect_verdict=verdict, text=text)


def _verdict(search: TrialSearch, program: Program, rows: ReproTrialLog) -> Verdict | None:
    """What bisection says; None where it takes too long."""
    end, report_trial = time.monotonic() + _TOTAL_TIMEOUT, repro_reporter(search)

    def tell(number: int, label: str, status: str, seconds: float) -> None:
        report_trial(number, label, status, seconds)
        if time.monotonic() > end:
            raise _OutOfTimeError

    search.on_message("bisecting the repro")
    with search.runner.for_program(program) as runner:
        runner.limits = replace(runner.limits, seconds=min(runner.limits.seconds, _TRIAL_TIMEOUT))
        try:
            return bisect(TrialSearch(runner, rows, tell, repeat=search.repeat), BisectOptions(repeat=search.repeat))
        except _OutOfTimeError:
            return None
