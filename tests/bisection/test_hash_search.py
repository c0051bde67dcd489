from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag.bisection.hash_search import find_culprit_sets, find_minimal_set, suffixes
from dynadiag.trial.plan import Switch, hash_bits


class Oracle:
    """Fails when every decision of one of the faults is on; counts the distinct sets it was asked."""

    def __init__(self, *faults: frozenset[str]) -> None:
        self.faults = faults
        self.asked: set[frozenset[str]] = set()

    def __call__(self, on: frozenset[str]) -> bool:
        self.asked.add(on)
        return any(fault <= on for fault in self.faults)


KEYS = [f"0/0/forward/node_{i}" for i in range(94)]


@given(st.sets(st.sampled_from(KEYS), min_size=1, max_size=4))
def test_decisions_that_only_fail_together_are_all_found(fault: set[str]) -> None:
    oracle = Oracle(frozenset(fault))
    assert find_minimal_set(KEYS, oracle) == fault
    assert len(oracle.asked) <= len(fault) * (math.ceil(math.log2(len(KEYS))) + 1) + 4


@given(st.sets(st.sampled_from(KEYS), min_size=1, max_size=4))
def test_with_two_trials_at_once_all_are_found_in_fewer_rounds(fault: set[str]) -> None:
    oracle, rounds = Oracle(frozenset(fault)), list[int]()
    answers: list[frozenset[str]] = []

    def ahead(sets: Sequence[frozenset[str]], answer: bool) -> None:
        new = set(sets) - oracle.asked
        rounds.append(len(new))
        answers.extend(sets if answer else ())
        assert len(sets) + answer <= 2
        for one in new:
            oracle(one)

    assert find_minimal_set(KEYS, oracle, ahead) == fault
    assert max(rounds) == 2
    assert len(rounds) <= len(fault) * (math.ceil(math.log(len(KEYS), 3)) + 2)
    assert all(answer <= fault for answer in answers)


@given(st.lists(st.sets(st.sampled_from(KEYS), min_size=1, max_size=3), min_size=1, max_size=4))
def test_every_independent_fault_is_found(faults: list[set[str]]) -> None:
    disjoint: list[frozenset[str]] = []
    for fault in faults:
        rest = frozenset(fault).difference(*disjoint)
        if rest:
            disjoint.append(rest)
    found = find_culprit_sets(KEYS, Oracle(*disjoint))
    assert set(found) == set(disjoint)


@pytest.mark.parametrize(("every", "most"), [(1, 110), (2, 150), (94, 20)])
def test_many_faults_cost_few_trials_each_and_one_what_halving_costs(every: int, most: int) -> None:
    oracle = Oracle(*(frozenset({key}) for key in KEYS[every - 1 :: every]))
    assert set(find_culprit_sets(KEYS, oracle)) == set(oracle.faults)
    assert len(oracle.asked) <= most


@given(st.sets(st.sampled_from(KEYS)), st.sampled_from([True, False]))
def test_suffixes_switch_exactly_the_chosen(chosen: set[str], keep: bool) -> None:
    switch = Switch("lowering", keep, suffixes(chosen, KEYS))
    assert {key for key in KEYS if switch.is_on(key)} == (chosen if keep else set(KEYS) - chosen)


@given(st.integers(1, 60), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_a_failure_that_is_not_monotone_still_gives_a_failing_set(size: int, random: object) -> None:
    keys = KEYS[:size]
    culprit, mask = keys[0], keys[-1]

    def fails(on: frozenset[str]) -> bool:  # the mask hides the culprit, unless everything is on
        return culprit in on and (mask not in on or len(on) == size)

    found = find_minimal_set(keys, fails)
    assert fails(found) or len(found) == size


def test_the_hash_is_stable() -> None:
    """Recordings contain it: a resumed search must mean the same decisions."""
    assert hash_bits("0/0/forward/relu")[-8:] == "00001111"
