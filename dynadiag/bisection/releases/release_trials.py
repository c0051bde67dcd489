"""Runs the program in the environment of a release, recorded, and says whether it fails as the program does."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynadiag.bisection.trial_log import TrialLog
from dynadiag.capture.launch import record_exit
from dynadiag.capture.settings import Settings
from dynadiag.check.measurement import measure
from dynadiag.errors import DynadiagError
from dynadiag.explanation.explanation import explain
from dynadiag.recording.journal import SUFFIX
from dynadiag.recording.opening import open_recording
from dynadiag.trial.executors import FreshInterpreter
from dynadiag.trial.interpreter import Interpreter
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.sandbox import Sandboxes, cache_variables
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits

_NO_MODULE = re.compile(r"No module named '([\w-]+)")
METRICS = ("breaks", "recompiles", "graphs", "compile-seconds")


@dataclass(frozen=True, slots=True)
class MetricBound:
    """A figure of a run and its limit: above it the run counts as failing."""

    metric: str
    limit: float

    @property
    def failure(self) -> Signature:
        """The failure of a run above the bound."""
        return Signature("metric", self.metric, f"{self.metric} above {self.limit:g}")

    def value(self, recording: Path) -> float | None:
        """The figure of a recorded run; ``None`` where it has none."""
        with open_recording(recording) as opened:
            run = measure(explain(opened), (), opened.run.target)
        return getattr(run, self.metric.replace("-", "_"))


@dataclass(frozen=True, slots=True)
class ReleaseTrial:
    """One run of the program with one release. ``value`` is the figure that is bounded."""

    outcome: Outcome
    status: str
    recording: Path | None = None
    value: float | None = None


@dataclass(slots=True)
class ReleaseTrials:
    """The trials of a program with one release each.

    ``reference`` is the failure that is searched for: that of the first trial that fails, or that of the ``bound``.
    Recordings and caches go to ``folder``. Each trial has compiler caches of its own, empty at first, so that
    recordings can be compared.
    """

    program: Program
    folder: Path
    limits: Limits
    log: TrialLog
    plan: Plan = field(default_factory=Plan)
    hooks: tuple[str, ...] = ()
    bound: MetricBound | None = None
    reference: Signature | None = None
    sandboxes: Sandboxes = field(default_factory=Sandboxes)
    _count: int = 0

    def __post_init__(self) -> None:
        if self.bound is not None:
            self.reference = self.bound.failure

    def __enter__(self) -> ReleaseTrials:
        return self

    def __exit__(self, *_: object) -> None:
        self.sandboxes.remove()

    def run(self, interpreter: Interpreter) -> ReleaseTrial:
        """One run. Raises `TargetError` if the target cannot be used in this environment."""
        self._count += 1
        recording = self.folder / f"{self._count}{SUFFIX}"
        outcome = self._outcome(interpreter, recording)
        if interpreter.path is not None:
            outcome = _without_missing_package(outcome)
        trial = self._judge(outcome, recording)
        if self.reference is None:
            self.reference = trial.outcome.signature
        status = trial.outcome.status_across_releases(self.reference)
        self.log.add(f"torch=={interpreter.torch}", trial.outcome, status, f"torch {interpreter.torch}")
        return replace(trial, status=status)

    def _outcome(self, interpreter: Interpreter, recording: Path) -> Outcome:
        environment = {
            **cache_variables(self.folder / f"caches-{self._count}"),
            **Settings(target=self.program.text, journal=str(recording), parent=os.getpid()).environment(
                str(recording.parent)
            ),
            **interpreter.environment(),
        }
        executor = FreshInterpreter(
            self.program, self.hooks, self.sandboxes, environment, interpreter=interpreter.python
        )
        return executor.run(self.plan, self.limits)

    def _judge(self, outcome: Outcome, recording: Path) -> ReleaseTrial:
        """The trial with its recording. With a bound, it fails if the figure is above the bound."""
        kept = recording if recording.exists() else None
        if kept is not None:
            record_exit(kept, outcome.exit_code, outcome.seconds)
        if self.bound is None or not outcome.passed:
            return ReleaseTrial(outcome, "", kept)
        value = self._value(kept)
        if value is None:
            return ReleaseTrial(replace(outcome, invalid="the run was not recorded"), "", kept)
        failed = self.bound.failure if value > self.bound.limit else None
        return ReleaseTrial(replace(outcome, signature=failed), "", kept, value)

    def _value(self, recording: Path | None) -> float | None:
        assert self.bound is not None
        try:
            return self.bound.value(recording) if recording is not None else None
        except DynadiagError:  # the recorder failed in this release
            return None


def _without_missing_package(outcome: Outcome) -> Outcome:
    """A program that lacks a package in another environment says nothing about torch."""
    failure = outcome.signature
    missing = _NO_MODULE.search(failure.message) if failure and failure.type == "ModuleNotFoundError" else None
    if missing is None or missing[1].startswith("torch"):
        return outcome
    return replace(outcome, signature=None, invalid=f"it has no package {missing[1]}: --with {missing[1]}")
