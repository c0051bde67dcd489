"""The limits of a search: its time, its number of trials, and the reason if it ends before its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dynadiag.trial.outcome import Outcome
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import longest_seconds

MAX_TRIALS = 200  # new trials of one search: several times what a search that converges takes


class SearchStoppedError(Exception):
    """The search ends before it has its answer. The text says why."""


class TakesLongError(SearchStoppedError):
    """The trials that are allowed for a failure that seems to be one of time have named no culprit."""


class AnswersContradictError(SearchStoppedError):
    """The same trial ended in two ways, so trials cannot say what is at fault."""


@dataclass(slots=True)
class SearchBudget:
    """``seconds`` for the whole search (``None``: no limit), and new ``trials``. Those of a resumed search are free.

    ``trials_by_time`` are for a failure of a program that measures its time.
    """

    seconds: float | None = None
    trials: int = MAX_TRIALS
    trials_by_time: int = MAX_TRIALS
    _began: float = field(default_factory=time.monotonic)
    _kept: float = 0.0
    _used: int = 0

    def seconds_left(self) -> float | None:
        """The seconds that are left, 0 or less where none are; ``None`` without a limit."""
        return None if self.seconds is None else self.seconds - self._kept - (time.monotonic() - self._began)

    def keep_back(self, seconds: float) -> None:
        """Leave these seconds for what comes after the search; 0 gives them back."""
        self._kept = seconds

    def part(self, most: float | None = None) -> SearchBudget:
        """A budget for a search within this one: the time that is left, and at most these seconds."""
        limits = [each for each in (self.seconds_left(), most) if each is not None]
        return SearchBudget(min(limits, default=None))

    def run(self, runner: Runner, run: Callable[[], list[Outcome]]) -> list[Outcome]:
        """The outcomes of trials. Raises `SearchStoppedError` if the time ends before them, or in them."""
        left, limits = self.seconds_left(), runner.limits
        if left is None or left >= longest_seconds(limits):
            return run()
        if left <= 0:
            raise self.out_of_time()
        runner.limits = replace(limits, seconds=left, of_cpu=False)
        try:
            outcomes = run()
        finally:
            runner.limits = limits
        if any(outcome.is_hang for outcome in outcomes):  # cut short by the budget, which says nothing about it
            raise self.out_of_time()
        return outcomes

    @property
    def is_out_of_time(self) -> bool:
        """Whether no seconds are left."""
        left = self.seconds_left()
        return left is not None and left <= 0

    def take(self, count: int, *, fails_by_time: bool = False) -> None:
        """Count new trials that are about to run. Raises `SearchStoppedError` if nothing is left for them."""
        if self.is_out_of_time:
            raise self.out_of_time()
        if self._used >= self.trials:
            raise SearchStoppedError(f"it does not converge: {self._used} trials have named no culprit")
        if fails_by_time and self._used >= self.trials_by_time:
            raise TakesLongError("each trial that failed took longer than each that passed")
        self._used += count

    def leave(self, trials: int, *, by_time: bool) -> None:
        """Leave at most this number of new trials, for a hang or for a failure that may be one of time."""
        if by_time:
            self.trials_by_time = self._used + trials
        else:
            self.trials = min(self.trials, self._used + trials)

    def out_of_time(self) -> SearchStoppedError:
        """The error for a search whose seconds are spent."""
        return SearchStoppedError("its time (--budget) is used up")
