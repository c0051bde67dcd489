"""The result of one variant, and its speed relative to the uncompiled call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.compare.compile_summary import CompileSummary
from dynadiag.compare.variant import Variant
from dynadiag.trial.signature import Signature

__all__ = [
    "MIN_ROUNDS",
    "Gpu",
    "Peak",
    "Quartiles",
    "RelativeSpeed",
    "VariantResult",
    "median_interval",
    "quartiles",
    "relative_speed",
]

CONFIDENCE = 15 / 16  # of an interval: with five rounds, the interval from the smallest to the largest has it
MIN_ROUNDS = 5  # that have an interval of this confidence


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak memory in bytes.

    ``host`` is the growth of the process's resident memory (VmHWM). ``device`` is
    ``torch.cuda.max_memory_allocated``, which includes memory that was allocated before.
    """

    host: int | None = None
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One warm call on a GPU, by torch.profiler.

    ``launches`` counts calls of CUDA's launch functions: a CUDA graph of many kernels is one. ``triton_share`` and
    ``tensor_core_share`` are shares of the kernels' time, 0 to 1. ``cold`` is the median time of a call after the GPU's
    cache was flushed (seconds by CUDA events).
    """

    kernels: int
    launches: int
    triton_share: float | None
    tensor_core_share: float | None
    cold: float


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Quartiles of the times of blocks of warm calls, in seconds per call."""

    low: float
    median: float
    high: float

    @property
    def spread(self) -> float:
        """The interquartile range, as in `torch.utils.benchmark.Measurement.iqr`."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class VariantResult:
    """The result of one variant. ``failure`` is None if it was measured to the end; earlier measurements are kept.

    All times are in seconds. ``first`` has one for each first call. ``rounds`` has, for each round, the time of a warm
    call in each block. ``inputs`` has one for each call with other arguments.
    """

    variant: Variant
    failure: Signature | None = None
    first: tuple[float, ...] = ()
    rounds: tuple[tuple[float, ...], ...] = ()
    inputs: tuple[float, ...] = ()
    first_peak: Peak = Peak()
    warm_peak: Peak = Peak()
    gpu: Gpu | None = None
    compiled: CompileSummary | None = None
    recording: Path | None = None
    torch: str | None = None
    threads: int | None = None
    device: str | None = None

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of a warm call, one for each block of all rounds."""
        return tuple(time for times in self.rounds for time in times)

    @property
    def warm(self) -> Quartiles | None:
        """Seconds of a warm call. None where no round was measured."""
        return quartiles(self.times) if self.rounds else None

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """An interval for the time of a warm call (seconds). Needs at least one round.

        With at least `MIN_ROUNDS` rounds it is a confidence interval of the median of the rounds' medians. It uses
        rounds because they are far apart in time, where a disturbance of one block also affects its neighbours. With
        fewer rounds it is the interquartile range of all blocks.
        """
        if len(self.rounds) < MIN_ROUNDS:
            found = quartiles(self.times)
            return found.low, found.high
        return median_interval([quartiles(times).median for times in self.rounds])


@dataclass(frozen=True, slots=True)
class RelativeSpeed:
    """The speed of a variant relative to the uncompiled call.

    ``ratio`` is above 1 if the variant is faster. ``noise``: the intervals of the two overlap. ``pays_after`` is the
    break-even: the number of calls, from the first on, after which both have taken equally long. It is None if that
    never happens.
    """

    ratio: float
    noise: bool
    pays_after: int | None


def quartiles(times: Sequence[float]) -> Quartiles:
    """Quartiles by linear interpolation between the two nearest values, the default of NumPy and torch."""
    ordered = sorted(times)
    return Quartiles(*(_quantile(ordered, part) for part in (0.25, 0.5, 0.75)))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A confidence interval of the median of the distribution that `values` come from, with level `CONFIDENCE`.

    It assumes nothing about the distribution. It runs from the k-th smallest to the k-th largest value, by the binomial
    distribution (David and Nagaraja, Order Statistics, 2003, section 7.1).
    """
    ordered, count = sorted(values), len(values)
    outside = 2 / 2**count  # the probability that all values are on one side of the median
    out = 1
    while 2 * out + 2 <= count and 1 - outside - 2 * math.comb(count, out) / 2**count >= CONFIDENCE:
        outside += 2 * math.comb(count, out) / 2**count
        out += 1
    return ordered[out - 1], ordered[count - out]


def _quantile(ordered: Sequence[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def relative_speed(result: VariantResult, eager: VariantResult) -> RelativeSpeed | None:
    """Return the speed of a variant relative to the uncompiled call. None if one of them was not measured.

    The difference counts as noise if the intervals of the two overlap.
    """
    mine, theirs = result.warm, eager.warm
    if mine is None or theirs is None:
        return None
    (low, high), (eager_low, eager_high) = result.confidence_interval, eager.confidence_interval
    noise = low <= eager_high and eager_low <= high
    pays = None if noise else _break_even(result.first, mine.median, eager.first, theirs.median)
    return RelativeSpeed(theirs.median / mine.median, noise, pays)


def _break_even(mine: Sequence[float], warm: float, theirs: Sequence[float], eager: float) -> int | None:
    """The smallest N with ``sum(mine) + (N - n) * warm <= sum(theirs) + (N - n) * eager``, for n first calls each."""
    if warm >= eager:
        return None
    extra = sum(mine) - sum(theirs)
    return len(mine) + max(0, math.ceil(extra / (eager - warm)))
