"""The search over releases: runs the trials that `release_search` chooses, and checks the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from packaging.version import Version

from dynadiag.bisection.releases.release_search import Boundaries, boundaries, next_release
from dynadiag.bisection.releases.release_trials import ReleaseTrial
from dynadiag.errors import DynadiagError
from dynadiag.trial.interpreter import Interpreter
from dynadiag.trial.program import TargetError


@dataclass(frozen=True, slots=True)
class TorchRelease:
    """A release that can be tried: in an interpreter that is there, else by installing ``requirement``."""

    version: Version
    requirement: str = ""
    interpreter: Interpreter | None = None


class ReleaseRunner(Protocol):
    """Runs the program once in an interpreter."""

    def run(self, interpreter: Interpreter) -> ReleaseTrial:
        """Run the program once with a release. Raises `TargetError`."""
        ...


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """What a search over releases found. ``trials`` has the last trial of each release that was tried, by its index.

    ``statuses`` belong to all releases, oldest first, ``None`` for those that were not tried. ``reasons`` say why a
    release is invalid. ``contradiction`` is set where a release ended in two ways.
    """

    candidates: tuple[TorchRelease, ...]
    statuses: tuple[str | None, ...]
    trials: dict[int, ReleaseTrial]
    reasons: dict[int, str]
    installs: int
    stopped: bool = False
    contradiction: str | None = None

    @property
    def boundaries(self) -> Boundaries:
        """Where the failure came and was mended."""
        return boundaries(self.statuses)

    @property
    def verdict(self) -> str:
        """``found``, ``passes``, ``fails_in_all``, ``flaky``, or ``stopped`` where too little could be tried."""
        if self.contradiction is not None:
            return "flaky"
        if self.boundaries.found:
            return "found"
        if "same" not in self.statuses:
            return "passes" if "pass" in self.statuses else "stopped"
        ends = self.statuses[0], self.statuses[-1]
        return "fails_in_all" if ends == ("same", "same") else "stopped"


@dataclass(slots=True)
class ReleaseSearcher:
    """Searches ``candidates``, oldest first; ``own`` is the index of the program's own release.

    ``install`` makes the environment of a requirement and raises `DynadiagError`; ``max_installs`` is how many were
    agreed to. ``repeat`` is how often a release is run until it fails. ``on_trial`` gets each release and its status.
    """

    candidates: Sequence[TorchRelease]
    own: int
    trials: ReleaseRunner
    install: Callable[[str], Interpreter]
    max_installs: int
    repeat: int = 1
    on_trial: Callable[[TorchRelease, str, float], None] = lambda _candidate, _status, _seconds: None
    installs: int = 0
    _interpreters: dict[int, Interpreter] = field(default_factory=dict)
    _trials: dict[int, ReleaseTrial] = field(default_factory=dict)
    _reasons: dict[int, str] = field(default_factory=dict)

    def search(self) -> ReleaseResult:
        """Try releases until the failure is placed, nothing is left, or no further install was agreed to."""
        statuses: list[str | None] = [None] * len(self.candidates)
        stopped = False
        while (index := next_release(statuses, self.own)) is not None:
            if self._needs_install(index) and self.installs >= self.max_installs:
                stopped = True
                break
            statuses[index] = self._try(index)
        return ReleaseResult(
            candidates=tuple(self.candidates),
            statuses=tuple(statuses),
            trials=self._trials,
            reasons=self._reasons,
            installs=self.installs,
            stopped=stopped,
            contradiction=self._check(statuses),
        )

    def _needs_install(self, index: int) -> bool:
        return index not in self._interpreters and self.candidates[index].interpreter is None

    def _try(self, index: int) -> str:
        """The status of a release: that of its first run that does not pass."""
        candidate = self.candidates[index]
        try:
            interpreter = self._interpreter(index)
            for _ in range(self.repeat):
                trial = self._run(index, interpreter)
                if trial.status != "pass":
                    break
        except DynadiagError as error:
            if index == self.own:
                raise
            self._reasons[index] = str(error)
            self.on_trial(candidate, f"invalid: {error}", 0.0)
            return "invalid"
        if trial.outcome.invalid is not None:
            self._reasons[index] = trial.outcome.invalid
        return trial.status

    def _interpreter(self, index: int) -> Interpreter:
        if index not in self._interpreters:
            candidate = self.candidates[index]
            if candidate.interpreter is None:
                self.installs += 1
            self._interpreters[index] = candidate.interpreter or self.install(candidate.requirement)
        return self._interpreters[index]

    def _run(self, index: int, interpreter: Interpreter) -> ReleaseTrial:
        trial = self._trials[index] = self.trials.run(interpreter)
        self.on_trial(self.candidates[index], trial.status, trial.outcome.seconds)
        return trial

    def _check(self, statuses: Sequence[str | None]) -> str | None:
        """Run the releases on either side of each boundary again. Returns what contradicts, if anything.

        Not where the user expects the failure to come and go (``repeat``).
        """
        found = boundaries(statuses)
        sides = {found.last_good, found.first_bad, found.last_bad, found.first_good} - {None}
        if self.repeat > 1:
            return None
        for index in sorted(filter(lambda side: side is not None, sides), key=lambda side: side or 0):
            assert index is not None
            try:
                again = self._run(index, self._interpreters[index]).status
            except TargetError as error:
                again = str(error)
            if again != statuses[index]:
                version = self.candidates[index].version
                return f"torch {version} ended in two ways ({statuses[index]}, then {again}): give --repeat N"
        return None
