"""A long task in the process of the program: what it finds is told as it goes, not at the end."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from dynadiag.trial.plan import Plan
from dynadiag.trial.report import lines
from dynadiag.trial.runner import Runner, Started
from dynadiag.trial.supervise import kill_session, tail

__all__ = ["Hear", "run_task"]

Hear = Callable[[dict[str, Any]], None]
_GRACE = 30.0  # seconds that a task has to bring in what it has, after it was asked to stop


def run_task(runner: Runner, plan: Plan, hear: Hear) -> str:
    """Runs the program with ``plan.task`` for its hooks; ``hear`` gets each event. Returns the end of its output.

    The process has one thread until it forks. On Ctrl-C it is asked to stop and bring in what it has, and
    `KeyboardInterrupt` is raised when it has done so.
    """
    with runner.started(plan) as process:
        interrupted = _listen(process, hear)
        printed = tail(process.output)
    if interrupted:
        raise KeyboardInterrupt
    return printed


def _listen(process: Started, hear: Hear) -> bool:
    buffer, deadline = bytearray(), float("inf")
    while time.monotonic() < deadline:
        try:
            readable, _, _ = select.select([process.ended, process.report], [], [], 1.0)
            if process.report in readable and _read(process.report, buffer):
                _told(buffer, hear)
            elif process.ended in readable:
                break
        except KeyboardInterrupt:
            if deadline < float("inf"):
                break
            os.kill(process.pid, signal.SIGINT)
            deadline = time.monotonic() + _GRACE
    kill_session(process.pid)
    return deadline < float("inf")


def _read(report: int, buffer: bytearray) -> bool:
    chunk = os.read(report, 1 << 16)
    buffer += chunk
    return bool(chunk)


def _told(buffer: bytearray, hear: Hear) -> None:
    """Hands on the whole lines in the buffer."""
    whole, newline, rest = bytes(buffer).rpartition(b"\n")
    if newline:
        buffer[:] = rest
        for event in lines(whole):
            hear(event)
