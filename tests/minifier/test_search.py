from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from minifier.search import (
    Budget,
    PartSelection,
    ReductionProgress,
    SearchContext,
    majority_vote,
    reduce_parts,
    sweep_parts,
)


class Numbers:
    """A list whose parts know nothing of each other."""

    def __init__(self, size: int, fails: Callable[[frozenset[int]], bool]) -> None:
        self.parts = tuple(range(size))
        self.asked: list[frozenset[int]] = []
        self.at_once: list[int] = []  # how many candidates each call has asked for
        self._fails = fails

    def key(self, candidate: PartSelection) -> str:
        return str(sorted(candidate.kept))

    def fails_each(self, candidates: Sequence[PartSelection]) -> list[bool]:
        self.at_once.append(len(candidates))
        self.asked += [candidate.kept for candidate in candidates]
        return [self._fails(candidate.kept) for candidate in candidates]

    def cost(self, candidate: PartSelection) -> int:
        return len(candidate.kept)

    def producers(self, part: int) -> frozenset[int]:
        return frozenset()

    def closure(self, kept: frozenset[int]) -> frozenset[int]:
        return kept

    def routes(self, part: int) -> tuple[int, ...]:
        return ()


lists = st.integers(1, 60).flatmap(
    lambda size: st.tuples(st.just(size), st.frozensets(st.integers(0, size - 1), min_size=1))
)
# Any family of minimal failing sets, and sets that contain one but pass all the same: not monotone.
wild = st.tuples(
    st.lists(st.frozensets(st.integers(0, 11), min_size=1), min_size=1, max_size=4), st.frozensets(st.integers(0, 11))
)


@given(lists)
def test_finds_exactly_the_culprits(case: tuple[int, frozenset[int]]) -> None:
    size, culprits = case
    outcome = reduce_parts(problem := Numbers(size, lambda kept: culprits <= kept))
    assert outcome.candidate is not None
    assert outcome.candidate.kept == culprits
    assert outcome.minimal
    assert len(problem.asked) == len(set(problem.asked))


@given(wild)
@settings(max_examples=300)
def test_is_one_minimal_for_any_oracle(case: tuple[list[frozenset[int]], frozenset[int]]) -> None:
    families, spoiler = case
    whole = frozenset(range(12))

    def fails(kept: frozenset[int]) -> bool:
        return kept == whole or (any(f <= kept for f in families) and not (spoiler and spoiler <= kept))

    outcome = reduce_parts(problem := Numbers(12, fails))
    assert outcome.candidate is not None
    assert outcome.minimal
    kept = outcome.candidate.kept
    assert fails(kept)
    assert not any(fails(kept - {part}) for part in kept if len(kept) > 1)
    assert len(problem.asked) == len(set(problem.asked))


@pytest.mark.parametrize(("size", "count", "limit"), [(1000, 1, 20), (1000, 2, 25), (1000, 5, 60), (5000, 5, 75)])
def test_takes_few_calls(size: int, count: int, limit: int) -> None:
    spread = frozenset(size * (2 * i + 1) // (2 * count) for i in range(count))
    reduce_parts(problem := Numbers(size, lambda kept: spread <= kept))
    assert len(problem.asked) < limit


def test_many_necessary_parts_in_a_row_are_found_by_looking_outwards() -> None:
    block = frozenset(range(400, 460))
    reduce_parts(problem := Numbers(1000, lambda kept: block <= kept))
    assert len(problem.asked) < 4 * len(block)


@given(lists, st.integers(0, 40))
def test_a_spent_budget_gives_the_best_so_far(case: tuple[int, frozenset[int]], calls: int) -> None:
    size, culprits = case
    problem = Numbers(size, lambda kept: culprits <= kept)
    outcome = reduce_parts(problem, SearchContext(budget=Budget(calls=calls)))
    assert len(problem.asked) <= calls
    failed = [kept for kept in problem.asked if culprits <= kept]
    if not outcome.minimal:
        best = outcome.candidate.kept if outcome.candidate else frozenset(range(size))
        assert culprits <= best
        assert len(best) == min((len(kept) for kept in failed), default=size)


def test_time_is_a_budget_too() -> None:
    ticks = iter(range(1000))
    ledger = SearchContext(budget=Budget(seconds=10), clock=lambda: float(next(ticks)))
    outcome = reduce_parts(Numbers(1000, lambda kept: {3, 500, 900} <= kept), ledger)
    assert not outcome.minimal
    assert 0 < ledger.calls < 10


@given(lists, st.integers(0, 30))
def test_resuming_repeats_nothing(case: tuple[int, frozenset[int]], calls: int) -> None:
    size, culprits = case
    memo: dict[str, bool] = {}
    first = Numbers(size, lambda kept: culprits <= kept)
    reduce_parts(first, SearchContext(memo, Budget(calls=calls)))
    second = Numbers(size, lambda kept: culprits <= kept)
    outcome = reduce_parts(second, SearchContext(memo))
    assert not set(first.asked) & set(second.asked)
    straight = Numbers(size, lambda kept: culprits <= kept)
    assert outcome == reduce_parts(straight)
    assert first.asked + second.asked == straight.asked


def test_a_good_suspicion_replaces_the_search() -> None:
    culprits = frozenset({17, 800})
    outcome = reduce_parts(
        problem := Numbers(1000, lambda kept: culprits <= kept), suspects=[frozenset({5}), frozenset({17, 800, 801})]
    )
    assert outcome.candidate is not None
    assert outcome.candidate.kept == culprits
    assert len(problem.asked) <= 8


def test_two_that_only_go_together_are_left_out_together() -> None:
    both = sweep_parts(
        Numbers(3, lambda kept: 0 in kept and (1 in kept) == (2 in kept)), PartSelection(frozenset(range(3)))
    )
    assert both.candidate is not None
    assert both.candidate.kept == {0}


@pytest.mark.parametrize("width", [2, 3, 8])
def test_parallel_trials_find_the_same(width: int) -> None:
    culprits = frozenset({17, 600, 601, 880})
    outcome = reduce_parts(problem := Numbers(1000, lambda kept: culprits <= kept), width=width)
    assert outcome.candidate is not None
    assert outcome.candidate.kept == culprits
    assert len(problem.asked) == len(set(problem.asked))
    assert max(problem.at_once) == width


def test_progress_is_told_after_each_trial() -> None:
    seen: list[ReductionProgress] = []
    problem = Numbers(100, lambda kept: {3, 50} <= kept)
    reduce_parts(problem, SearchContext(budget=Budget(calls=1000), progress=seen.append))
    assert max(p.calls for p in seen) == len(problem.asked)
    assert len(seen) == seen[-1].calls + seen[-1].hits
    assert seen[-1].best == 2
    assert seen[-1].calls_left == 1000 - len(problem.asked)
    best = [p.best for p in seen if p.best is not None]
    assert best == sorted(best, reverse=True)


@given(st.lists(st.booleans(), min_size=7, max_size=7), st.sampled_from([1, 3, 5, 7]))
def test_voting_answers_with_the_majority_and_asks_no_more_than_it_must(answers: list[bool], votes: int) -> None:
    asked = iter(answers)
    assert majority_vote(lambda _: next(asked), votes)(0) == (sum(answers[:votes]) > votes // 2)
    used = len(answers) - len(list(asked))
    assert votes // 2 + 1 <= used <= votes


def test_nothing_to_reduce() -> None:
    assert reduce_parts(Numbers(0, lambda _: True)).minimal
    only = reduce_parts(Numbers(1, lambda _: True))
    assert only.candidate is not None
    assert only.candidate.kept == {0}


def test_a_whole_that_does_not_fail_when_put_together_again_is_said_to_be_so() -> None:
    outcome = reduce_parts(problem := Numbers(50, lambda kept: False))
    assert outcome.candidate is None
    assert not outcome.minimal
    assert len(problem.asked) < 60


def test_knows_no_torch() -> None:
    code = "import sys, minifier.search; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
