"""Quartiles, the noise, and when compiling has paid for itself."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils.common import TaskSpec

from dynadiag.compare.variant import Variant
from dynadiag.compare.variant_result import CONFIDENCE, VariantResult, median_interval, quartiles, relative_speed

_seconds = st.floats(1e-7, 100)


def row(mode: str, first: tuple[float, ...], times: tuple[float, ...]) -> VariantResult:
    return VariantResult(Variant("make", mode), first=first, rounds=(times,) if times else ())


@given(st.lists(_seconds, min_size=1, max_size=40))
def test_quartiles_are_those_of_torch(times: list[float]) -> None:
    measured = Measurement(1, times, TaskSpec("", ""))
    found = quartiles(times)
    assert found.median == pytest.approx(measured.median)
    assert found.spread == pytest.approx(measured.iqr, abs=1e-5 * max(times))  # torch computes it in float32
    assert found.low == pytest.approx(float(torch.tensor(times, dtype=torch.float64).quantile(0.25)))


@given(st.floats(0, 1e3), st.floats(1e-6, 1), st.floats(1.01, 100))
def test_after_that_many_calls_both_have_taken_as_long_and_one_call_earlier_not(
    extra: float, warm: float, faster: float
) -> None:
    slow = warm * faster
    eager, compiled = row("eager", (slow, slow, slow), (slow,)), row("default", (extra, warm, warm), (warm,))
    found = relative_speed(compiled, eager)
    assert found is not None
    assert not found.noise
    calls = found.pays_after
    assert calls is not None

    def behind(count: int) -> float:
        """Seconds by which the compiled calls are behind after `count` of them."""
        return (extra + 2 * warm + (count - 3) * warm) - count * slow

    slack = 1e-9 * (extra + calls * slow)  # of rounding
    assert behind(calls) <= slack
    assert calls == 3 or behind(calls - 1) >= -slack


def test_what_is_slower_never_pays() -> None:
    found = relative_speed(row("default", (9.0,), (0.5, 0.6)), row("eager", (0.1,), (0.1, 0.2)))
    assert found is not None
    assert (found.noise, found.pays_after) == (False, None)
    assert found.ratio < 1


def test_a_difference_smaller_than_the_spread_is_noise() -> None:
    wide = (1.0, 2.0, 3.0, 4.0)
    found = relative_speed(row("default", (9.0,), tuple(time * 0.9 for time in wide)), row("eager", (1.0,), wide))
    assert found is not None
    assert (found.noise, found.pays_after) == (True, None)


@pytest.mark.parametrize(
    ("count", "out", "confidence"), [(5, 1, 0.9375), (8, 1, 0.9922), (10, 2, 0.9785), (20, 6, 0.9586)]
)
def test_the_interval_of_a_median_leaves_out_as_many_as_its_confidence_allows(
    count: int, out: int, confidence: float
) -> None:
    """Against values that are tabled (and that SciPy's `binom` gives)."""
    assert median_interval(list(range(count))) == (out - 1, count - out)
    outside = 2 * sum(math.comb(count, left) for left in range(out)) / 2**count
    assert 1 - outside == pytest.approx(confidence, abs=5e-4)
    assert 1 - outside >= CONFIDENCE


@given(st.lists(_seconds, min_size=1, max_size=60))
def test_the_interval_of_a_median_holds_the_median(values: list[float]) -> None:
    low, high = median_interval(values)
    assert low <= quartiles(values).median * (1 + 1e-9)
    assert high >= quartiles(values).median * (1 - 1e-9)


def test_one_bad_block_a_round_does_not_hide_a_difference_that_every_round_shows() -> None:
    slow = VariantResult(Variant("make", "eager"), first=(1.0,), rounds=((2.0, 2.1, 90.0),) * 5)
    quick = VariantResult(Variant("make", "default"), first=(1.0,), rounds=((1.0, 1.1, 80.0),) * 5)
    found = relative_speed(quick, slow)
    assert found is not None
    assert not found.noise


def test_what_was_not_measured_stands_nowhere() -> None:
    assert relative_speed(row("default", (9.0,), ()), row("eager", (1.0,), (1.0,))) is None
