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
from dynadiag.trial.build_outcome import build_outcome
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import EventWriter
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.supervise import Limits, kill_session, read_tail, supervise

__all__ = ["run_and_exit", "run_in_fork"]

_PR_SET_PDEATHSIG = 1


def run_in_fork(action: Callable[[], None], plan: Plan, limits: Limits) -> Outcome:
    """The outcome of ``action`` in a fork with its own process session, output and time limit.

    A crash, a hang or a memory leak of the action does not affect this process. The process must have one thread, and
    must never have run a parallel region. `action` sets the thread count that it wants.
    """
    with _channels() as (output, reading, writing):
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _become_trial(action, plan, output, writing)
        os.close(writing)
        ended = os.pidfd_open(pid)
        try:
            seen = supervise(pid, ended, reading, limits, output)
        finally:
            os.close(ended)
            kill_session(pid)
            _, status = os.waitpid(pid, 0)
        return build_outcome(seen, os.waitstatus_to_exitcode(status), pid, plan, read_tail(output))


@contextmanager
def _channels() -> Iterator[tuple[int, int, int]]:
    """(output file, read end, write end) as descriptors. The caller closes the write end after forking."""
    descriptor, name = tempfile.mkstemp(prefix="dynadiag-", suffix=".out")
    Path(name).unlink()
    reading, writing = os.pipe()
    try:
        yield descriptor, reading, writing
    finally:
        os.close(descriptor)
        os.close(reading)


def run_and_exit(action: Callable[[], None], plan: Plan) -> NoReturn:
    """End this process with `action` as its trial: for a process that cannot be forked. Its events go to its own
    supervisor.
    """
    TRIAL.plan = plan
    code = _report_end(action, plan)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _become_trial(action: Callable[[], None], plan: Plan, output: int, report: int) -> NoReturn:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for target in (1, 2):
        os.dup2(output, target)
    TRIAL.reporter = EventWriter(report)
    run_and_exit(action, plan)


def _report_end(action: Callable[[], None], plan: Plan) -> int:
    try:
        action()
    except BaseException as error:  # noqa: BLE001 - any exception is the outcome of the trial
        traceback.print_exc()
        TRIAL.send(
            "end",
            failure=failure.signature_of(error, plan.rung).to_json(),
            witness=failure.witness_of(error),
            lines=failure.user_lines(error),
        )
        return 1
    TRIAL.send("end", failure=None)
    return 0
