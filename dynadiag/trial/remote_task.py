"""Runs a long task in the program's process and hands over its events while it runs."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dynadiag.trial.events import OwnTrialStarted, TrialEvent, parse_events
from dynadiag.trial.outcome import Outcome, build_outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import ProcessResult, RunningProcess, kill_session, read_tail

OnEvent = Callable[[TrialEvent], None]
STOP_TIMEOUT = 30.0  # seconds that a task has to deliver its results after it was asked to stop


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a task ended.

    ``printed`` is the end of its output. ``outcome`` is set where the task went on as a trial of its own.
    ``interrupted`` says that Ctrl-C was pressed: the task was asked to stop, and has delivered what it had.
    """

    printed: str
    outcome: Outcome | None
    interrupted: bool


def run_task(runner: Runner, plan: Plan, on_event: OnEvent, seed: int = 0, seconds: float | None = None) -> TaskResult:
    """Run the program with ``plan.task`` for its hooks, and call ``on_event`` with each event. ``seed`` as in
    `Runner.start_process`. After ``seconds`` the task is asked to stop, as after Ctrl-C.

    The process has one thread until it forks. A task that cannot fork says so (`OwnTrialStarted`) and goes on as its
    own trial, with a time limit; from then on its events belong to the trial.
    """
    with runner.start_process(plan, seed) as process:
        listener = _Listener(process, on_event, seconds)
        listener.listen()
        printed = read_tail(process.output)
        own_trial = listener.own_trial
        if own_trial is None:
            return TaskResult(printed, None, listener.interrupted)
        seen = ProcessResult(tuple(own_trial.events), time.monotonic() - own_trial.began, own_trial.stop_reason)
        outcome = build_outcome(seen, process.wait(), process.pid, own_trial.plan, printed)
        return TaskResult(printed, outcome, listener.interrupted)


@dataclass(slots=True)
class _OwnTrial:
    """A task that goes on as its own trial."""

    plan: Plan
    seconds: float
    began: float = field(default_factory=time.monotonic)
    events: list[TrialEvent] = field(default_factory=list)
    stop_reason: str | None = None


class _Listener:
    def __init__(self, process: RunningProcess, on_event: OnEvent, seconds: float | None) -> None:
        self._process, self._on_event = process, on_event
        self._buffer = bytearray()
        self._last_call = float("inf") if seconds is None else time.monotonic() + seconds
        self._deadline = float("inf")  # set once the task was asked to stop
        self.own_trial: _OwnTrial | None = None
        self.interrupted = False

    def listen(self) -> None:
        """Read events until the process ends or its time is over."""
        while time.monotonic() < self._deadline and not self._timed_out():
            try:
                if time.monotonic() >= self._last_call and self.own_trial is None:
                    self._ask_to_stop()
                readable, _, _ = select.select([self._process.ended, self._process.events], [], [], 1.0)
                if self._process.events in readable and self._read():
                    self._handle_lines()
                elif self._process.ended in readable:
                    break
            except KeyboardInterrupt:
                if self.interrupted:
                    break
                self.interrupted = True
                self._ask_to_stop()
        kill_session(self._process.pid)

    def _ask_to_stop(self) -> None:
        if self._deadline == float("inf"):
            os.kill(self._process.pid, signal.SIGINT)
            self._deadline = time.monotonic() + STOP_TIMEOUT

    def _timed_out(self) -> bool:
        if self.own_trial is None or time.monotonic() - self.own_trial.began < self.own_trial.seconds:
            return False
        self.own_trial.stop_reason = "hang"
        return True

    def _read(self) -> bool:
        chunk = os.read(self._process.events, 1 << 16)
        self._buffer += chunk
        return bool(chunk)

    def _handle_lines(self) -> None:
        whole, newline, rest = bytes(self._buffer).rpartition(b"\n")
        if newline:
            self._buffer[:] = rest
            for event in parse_events(whole):
                if self.own_trial is not None:
                    self.own_trial.events.append(event)
                elif isinstance(event, OwnTrialStarted):
                    self.own_trial = _OwnTrial(event.plan, event.seconds)
                else:
                    self._on_event(event)
