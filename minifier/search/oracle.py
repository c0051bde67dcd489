"""The oracle: tries candidates, each at most once, within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from typing import Generic, TypeVar

from minifier.search.problem import Budget, ProgressCallback, ReductionProblem, ReductionProgress

CandidateT = TypeVar("CandidateT", bound=Hashable)
AskedT = TypeVar("AskedT")


class BudgetSpentError(Exception):
    """Ends a search whose budget is spent. `reduce_parts` catches it and returns the best candidate so far."""


class SearchContext:
    """Memo, budget and counters, shared by the stages of one search.

    `memo` maps the key of a candidate to whether it fails. With the memo of an interrupted search, a new search repeats
    the same steps without trials up to the point where the other one stopped, because it is deterministic. `clock`
    returns seconds.
    """

    def __init__(
        self,
        memo: MutableMapping[str, bool] | None = None,
        budget: Budget | None = None,
        progress: ProgressCallback | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memo: MutableMapping[str, bool] = {} if memo is None else memo
        self.calls = 0
        self.hits = 0
        self.stage = ""
        self._budget = budget or Budget()
        self._progress = progress
        self._clock = clock
        self._start = clock()

    def spend(self) -> None:
        """Count one call of the oracle. Raises `BudgetSpentError` if the budget is spent."""
        calls, seconds = self.calls_left, self.seconds_left
        if (calls is not None and calls <= 0) or (seconds is not None and seconds <= 0):
            raise BudgetSpentError
        self.calls += 1

    @property
    def calls_left(self) -> int | None:
        """The calls that the budget still allows; None without a limit."""
        return None if self._budget.calls is None else self._budget.calls - self.calls

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the budget still allows; None without a limit."""
        limit = self._budget.seconds
        return None if limit is None else limit - (self._clock() - self._start)

    def report(self, key: str, failed: bool, size: int, best: int | None, *, known: bool) -> None:
        """Pass the result of a trial to the progress callback, if there is one. ``known``: it came from the memo."""
        if self._progress is None:
            return
        self._progress(
            ReductionProgress(
                stage=self.stage,
                key=key,
                failed=failed,
                size=size,
                best=best,
                calls=self.calls,
                hits=self.hits,
                calls_left=self.calls_left,
                seconds_left=self.seconds_left,
                known=known,
            )
        )


class Oracle(Generic[CandidateT]):
    """Says which candidates of one problem fail: from the memo, or by a trial.

    Up to `width` candidates are tried at the same time. If failing is monotone, that does not change the result of the
    search.
    """

    def __init__(
        self,
        problem: ReductionProblem[CandidateT],
        context: SearchContext | None = None,
        width: int = 1,
    ) -> None:
        self.problem = problem
        self.context = context or SearchContext()
        self.width = width
        self.best: CandidateT | None = None
        self._best_cost: int | None = None

    def fails(self, candidate: CandidateT) -> bool:
        """Whether the candidate fails. Raises `BudgetSpentError`."""
        return self.fails_each([candidate])[0]

    def fails_each(self, candidates: Sequence[CandidateT]) -> list[bool]:
        """Whether each candidate fails. All of them are tried. Raises `BudgetSpentError`."""
        keys = [self.problem.key(candidate) for candidate in candidates]
        fresh = {key: c for key, c in zip(keys, candidates, strict=True) if key not in self.context.memo}
        self.context.hits += len(keys) - len(fresh)
        for _ in fresh:
            self.context.spend()
        if fresh:
            self.context.memo.update(zip(fresh, self.problem.fails_each(list(fresh.values())), strict=True))
        verdicts = [self.context.memo[key] for key in keys]
        for key, candidate, failed in zip(keys, candidates, verdicts, strict=True):
            self._report(key, candidate, failed, known=fresh.pop(key, None) is None)
        return verdicts

    def first_failing(self, candidates: Sequence[CandidateT]) -> CandidateT | None:
        """The first candidate that fails, or None. Tries at most `width` - 1 candidates after it."""
        for start in range(0, len(candidates), self.width):
            batch = candidates[start : start + self.width]
            for candidate, failed in zip(batch, self.fails_each(batch), strict=True):
                if failed:
                    return candidate
        return None

    def _report(self, key: str, candidate: CandidateT, failed: bool, *, known: bool) -> None:
        size = self.problem.cost(candidate)
        if failed and (self._best_cost is None or size < self._best_cost):
            self.best, self._best_cost = candidate, size
        self.context.report(key, failed, size, self._best_cost, known=known)


def majority_vote(fails: Callable[[AskedT], bool], votes: int = 3) -> Callable[[AskedT], bool]:
    """An oracle that calls `fails` up to `votes` times and returns the majority. It stops when that is certain.

    It is for flaky failures. One failure is not enough: a candidate without the culprit may fail by chance, and the
    culprit would be lost.
    """
    needed = votes // 2 + 1

    def majority(candidate: AskedT) -> bool:
        failed = passed = 0
        while failed < needed and passed < votes - needed + 1:
            if fails(candidate):
                failed += 1
            else:
                passed += 1
        return failed >= needed

    return majority
