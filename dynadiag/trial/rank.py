"""A rank of a distributed job in a trial whose program is the launcher: says which exception ends it.

A launcher, such as ``torchrun``, knows the exit codes of its ranks and nothing of why they failed.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from dynadiag.capture.run_metadata import job_place
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import RankEnded, RankFailed
from dynadiag.trial.facts import run_facts
from dynadiag.trial.rank_stacks import answer_with_stack
from dynadiag.trial.signature import Signature, signature_of, user_lines, witness_of

__all__ = ["killed_rank", "report_exceptions", "this_rank"]


def report_exceptions() -> None:
    """Report the end of this process and the exception that leads to it, if it is a rank; that is printed as before."""
    rank = this_rank()
    if rank is None:
        return
    TRIAL.rank = rank
    TRIAL.send(answer_with_stack(rank))
    before = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failure = replace(signature_of(error, TRIAL.plan.rung), rank=rank)
        TRIAL.send(RankFailed(failure, run_facts(), witness_of(error), tuple(user_lines(error))))
        before(kind, error, trace)

    sys.excepthook = report
    atexit.register(_report_end)


def _report_end() -> None:
    with suppress(OSError):  # the supervisor has ended
        TRIAL.send(RankEnded(run_facts()))


def this_rank() -> int | None:
    """The rank of this process, if it is part of a distributed job."""
    rank = job_place(os.environ).get("rank")
    return rank if isinstance(rank, int) else None


def killed_rank(error: BaseException) -> Signature | None:
    """The failure of a rank that a signal ended, by the exception of ``torchrun``. ``torchrun`` itself ends others."""
    for rank, failure in sorted(getattr(error, "failures", {}).items()):
        code = getattr(failure, "exitcode", 0)
        if code < 0 and -code != signal.SIGTERM:
            name = signal.Signals(-code).name
            return Signature("signal", name, f"killed by {name}", rank=rank)
    return None
