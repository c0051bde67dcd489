"""Runs one action as a trial in a fork of this process, so that it works on what is in memory here."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from dynadiag.trial import failure
from dynadiag.trial.ending import outcome_of
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.report import Reporter
from dynadiag.trial.runtime import TRIAL
from dynadiag.trial.supervise import Limits, kill_session, tail, watch

__all__ = ["conclude", "forked"]

_PR_SET_PDEATHSIG = 1


def forked(action: Callable[[], None], plan: Plan, limits: Limits) -> Outcome:
    """The outcome of ``action`` in a fork with its own process session, output and time limit.

    A crash, a hang or a memory leak of the action does not affect this process. The process must have one thread, and
    must never have run a parallel region. `action` sets the thread count that it wants.
    """
    with _workplace() as (output, reading, writing):
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _be_the_trial(action, plan, output, writing)
        os.close(writing)
        ended = os.pidfd_open(pid)
        try:
            seen = watch(pid, ended, reading, limits, output)
        finally:
            os.close(ended)
            kill_session(pid)
            _, status = os.waitpid(pid, 0)
        return outcome_of(seen, os.waitstatus_to_exitcode(status), pid, plan, tail(output))


@contextmanager
def _workplace() -> Iterator[tuple[int, int, int]]:
    """(output file, read end, write end) as descriptors. The caller closes the write end after forking."""
    descriptor, name = tempfile.mkstemp(prefix="dynadiag-", suffix=".out")
    Path(name).unlink()
    reading, writing = os.pipe()
    try:
        yield descriptor, reading, writing
    finally:
        os.close(descriptor)
        os.close(reading)


def conclude(action: Callable[[], None], plan: Plan) -> NoReturn:
    """End this process with `action` as its trial: for a process that cannot be forked. Its events go to its own
    supervisor.
    """
    TRIAL.plan = plan
    code = _ended(action, plan)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _be_the_trial(action: Callable[[], None], plan: Plan, output: int, report: int) -> NoReturn:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for target in (1, 2):
        os.dup2(output, target)
    TRIAL.reporter = Reporter(report)
    conclude(action, plan)


def _ended(action: Callable[[], None], plan: Plan) -> int:
    try:
        action()
    except BaseException as error:  # noqa: BLE001 - any exception is the outcome of the trial
        traceback.print_exc()
        TRIAL.send(
            "end",
            failure=failure.of_exception(error, plan.rung).to_json(),
            witness=failure.witness_of(error),
            lines=failure.user_lines(error),
        )
        return 1
    TRIAL.send("end", failure=None)
    return 0
