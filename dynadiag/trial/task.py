"""Runs a long task in the program's process and hands over its events while it runs."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dynadiag.trial.ending import outcome_of
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.report import lines
from dynadiag.trial.runner import Runner, Started
from dynadiag.trial.supervise import Watched, kill_session, tail

__all__ = ["Hear", "TaskEnd", "run_task"]

Hear = Callable[[dict[str, Any]], None]
_GRACE = 30.0  # seconds that a task has to deliver its results after Ctrl-C


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ended.

    ``printed`` is the end of its output. ``outcome`` is set where the task went on as a trial of its own.
    ``interrupted`` says that Ctrl-C was pressed: the task was asked to stop, and has delivered what it had.
    """

    printed: str
    outcome: Outcome | None
    interrupted: bool


def run_task(runner: Runner, plan: Plan, hear: Hear, seed: int = 0) -> TaskEnd:
    """Run the program with ``plan.task`` for its hooks, and call ``on_event`` with each event. ``seed`` as in
    `Runner.start_process`.

    The process has one thread until it forks. A task that cannot fork says so (the event ``alone``) and goes on as its
    own trial, with a time limit; from then on its events belong to the trial.
    """
    with runner.started(plan, seed) as process:
        listener = _Listener(process, hear)
        listener.listen()
        printed = tail(process.output)
        alone = listener.alone
        if alone is None:
            return TaskEnd(printed, None, listener.interrupted)
        seen = Watched(tuple(alone.events), time.monotonic() - alone.began, alone.stopped)
        outcome = outcome_of(seen, process.wait(), process.pid, alone.plan, printed)
        return TaskEnd(printed, outcome, listener.interrupted)


@dataclass(slots=True)
class _Alone:
    """A task that goes on as its own trial."""

    plan: Plan
    seconds: float
    began: float = field(default_factory=time.monotonic)
    events: list[dict[str, Any]] = field(default_factory=list)
    stopped: str | None = None


class _Listener:
    def __init__(self, process: Started, hear: Hear) -> None:
        self._process, self._hear = process, hear
        self._buffer = bytearray()
        self._deadline = float("inf")
        self.alone: _Alone | None = None

    @property
    def interrupted(self) -> bool:
        return self._deadline < float("inf")

    def listen(self) -> None:
        """Read events until the process ends or its time is over."""
        while time.monotonic() < self._deadline and not self._hangs():
            try:
                readable, _, _ = select.select([self._process.ended, self._process.report], [], [], 1.0)
                if self._process.report in readable and self._read():
                    self._told()
                elif self._process.ended in readable:
                    break
            except KeyboardInterrupt:
                if self.interrupted:
                    break
                os.kill(self._process.pid, signal.SIGINT)
                self._deadline = time.monotonic() + _GRACE
        kill_session(self._process.pid)

    def _hangs(self) -> bool:
        if self.alone is None or time.monotonic() - self.alone.began < self.alone.seconds:
            return False
        self.alone.stopped = "hang"
        return True

    def _read(self) -> bool:
        chunk = os.read(self._process.report, 1 << 16)
        self._buffer += chunk
        return bool(chunk)

    def _told(self) -> None:
        """Handle the complete lines in the buffer."""
        whole, newline, rest = bytes(self._buffer).rpartition(b"\n")
        if newline:
            self._buffer[:] = rest
            for event in lines(whole):
                if self.alone is not None:
                    self.alone.events.append(event)
                elif event["event"] == "alone":
                    self.alone = _Alone(Plan.from_json(event["plan"]), float(event["seconds"]))
                else:
                    self._hear(event)
