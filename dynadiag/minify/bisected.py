"""What bisection says of a repro, for its header: the program is small, so that it takes seconds."""

from __future__ import annotations

import time
from dataclasses import replace

from dynadiag.bisect.bisector import Options, bisect
from dynadiag.bisect.search import Search
from dynadiag.bisect.verdict import Verdict
from dynadiag.minify.repro import with_remark
from dynadiag.minify.result import Result, named
from dynadiag.minify.rows import ReproRows, telling
from dynadiag.trial.program import Program

__all__ = ["bisected"]

_TRIAL = 30.0  # seconds; a fork of a repro compiles a few operations
_SECONDS = 120.0  # of all trials together
_NOT_IN_TIME = "the repro is not bisected: that takes too long here"
_NOTHING = "bisecting the repro names nothing below its rung"


class _OutOfTimeError(Exception):
    """Raised between two trials."""


def bisected(search: Search, program: Program, rows: ReproRows, result: Result) -> Result:
    """The result with what is at fault in ``program``, its text, and with that in the comment at the text's top.

    Where it is not found in time, or fresh interpreters would have to look for it, the result says so.
    """
    verdict = _verdict(search, program, rows) if search.runner.forks else None
    if verdict is None or not verdict.culprits:
        return replace(result, notes=(*result.notes, _NOT_IN_TIME if verdict is None else _NOTHING))
    return replace(result, bisected=verdict, text=with_remark(result.text, f"bisected: {named(verdict)}"))


def _verdict(search: Search, program: Program, rows: ReproRows) -> Verdict | None:
    """What bisection says; None where it takes too long."""
    end, told = time.monotonic() + _SECONDS, telling(search)

    def tell(number: int, label: str, status: str, seconds: float) -> None:
        told(number, label, status, seconds)
        if time.monotonic() > end:
            raise _OutOfTimeError

    search.announce("bisecting the repro")
    with search.runner.on(program) as runner:
        runner.limits = replace(runner.limits, seconds=min(runner.limits.seconds, _TRIAL))
        try:
            return bisect(Search(runner, rows, tell, repeat=search.repeat), Options(repeat=search.repeat))
        except _OutOfTimeError:
            return None
