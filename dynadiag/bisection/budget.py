"""The limits of a search: its time, its number of trials, and the reason if it ends before its answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

__all__ = ["MAX_TRIALS", "AnswersContradictError", "SearchBudget", "SearchStoppedError", "TakesLongError"]

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
    _used: int = 0

    def seconds_left(self) -> float | None:
        """The seconds that are left, 0 or less where none are; ``None`` without a limit."""
        return None if self.seconds is None else self.seconds - (time.monotonic() - self._began)

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
        return SearchStoppedError(f"its {self.seconds:g} seconds (--budget) are spent")
