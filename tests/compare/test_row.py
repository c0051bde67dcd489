"""Quartiles, the noise, and when compiling has paid for itself."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils.common import TaskSpec

from dynadiag.compare.row import Row, quartiles, standing
from dynadiag.compare.variant import Variant

_seconds = st.floats(1e-7, 100)


def row(mode: str, first: tuple[float, ...], times: tuple[float, ...]) -> Row:
    return Row(Variant("make", mode), first=first, times=times, rounds=1)


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
    found = standing(compiled, eager)
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
    found = standing(row("default", (9.0,), (0.5, 0.6)), row("eager", (0.1,), (0.1, 0.2)))
    assert found is not None
    assert (found.noise, found.pays_after) == (False, None)
    assert found.ratio < 1


def test_a_difference_smaller_than_the_spread_is_noise() -> None:
    wide = (1.0, 2.0, 3.0, 4.0)
    found = standing(row("default", (9.0,), tuple(time * 0.9 for time in wide)), row("eager", (1.0,), wide))
    assert found is not None
    assert (found.noise, found.pays_after) == (True, None)


def test_what_was_not_measured_stands_nowhere() -> None:
    assert standing(row("default", (9.0,), ()), row("eager", (1.0,), (1.0,))) is None
