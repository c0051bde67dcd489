"""What was found out about one variant, and how it stands against the uncompiled call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.compare.compiled import Compiled
from dynadiag.compare.variant import Variant
from dynadiag.trial.signature import Signature

__all__ = ["Gpu", "Peak", "Quartiles", "Row", "Standing", "median_interval", "quartiles", "standing"]

CONFIDENCE = 15 / 16  # of an interval; with five rounds it is that of the smallest to the largest
FEWEST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Peak:
    """Peaks of memory in bytes.

    ``host`` is how far the resident memory of the process rose above what it was before (VmHWM); ``device`` is torch's
    own count of what was allocated at once (``torch.cuda.max_memory_allocated``), with what stood there before.
    """

    host: int | None = None
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One warm call on a GPU, by torch.profiler.

    ``launches`` are calls of CUDA's launching functions: a CUDA graph of many kernels is one. ``triton_share`` and
    ``tensor_core_share`` are of the kernels' time, 0 to 1. ``cold`` is the time of a call whose inputs are in no cache
    (seconds by CUDA events, the median).
    """

    kernels: int
    launches: int
    triton_share: float | None
    tensor_core_share: float | None
    cold: float


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Of the times of blocks of warm calls, in seconds a call."""

    low: float
    median: float
    high: float

    @property
    def spread(self) -> float:
        """The interquartile range, as `torch.utils.benchmark.Measurement.iqr` has it."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Row:
    """One variant. ``failure`` is ``None`` where it was measured to the end; what was measured before one is kept.

    ``first`` are the seconds of the first calls, one by one; ``rounds`` those of a warm call, block by block, round by
    round; ``inputs`` those of one call with each of other arguments.
    """

    variant: Variant
    failure: Signature | None = None
    first: tuple[float, ...] = ()
    rounds: tuple[tuple[float, ...], ...] = ()
    inputs: tuple[float, ...] = ()
    first_peak: Peak = Peak()
    warm_peak: Peak = Peak()
    gpu: Gpu | None = None
    compiled: Compiled | None = None
    recording: Path | None = None
    torch: str | None = None
    threads: int | None = None
    device: str | None = None

    @property
    def times(self) -> tuple[float, ...]:
        """The seconds of a warm call in each block of all rounds."""
        return tuple(time for times in self.rounds for time in times)

    @property
    def warm(self) -> Quartiles | None:
        return quartiles(self.times) if self.rounds else None

    @property
    def interval(self) -> tuple[float, float]:
        """Where the time of a warm call is, by all that was measured.

        From `FEWEST_ROUNDS` on that is a confidence interval of the median of the rounds' medians: rounds lie apart in
        time, what disturbs one block disturbs its neighbours too. Fewer say nothing of each other, and the middle half
        of all blocks has to do. Asks for at least one round.
        """
        if len(self.rounds) < FEWEST_ROUNDS:
            found = quartiles(self.times)
            return found.low, found.high
        return median_interval([quartiles(times).median for times in self.rounds])


@dataclass(frozen=True, slots=True)
class Standing:
    """A variant against the uncompiled call.

    ``ratio`` is above 1 where it is faster. ``noise`` says that the difference is not beyond the spread of the
    measurements. ``pays_after`` is the number of calls, from the first on, after which both have taken as long;
    ``None`` where that never comes.
    """

    ratio: float
    noise: bool
    pays_after: int | None


def quartiles(times: Sequence[float]) -> Quartiles:
    """Quartiles by linear interpolation between the nearest two, as NumPy's and torch's default is."""
    ordered = sorted(times)
    return Quartiles(*(_at(ordered, part) for part in (0.25, 0.5, 0.75)))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the median of what `values` are drawn from, `CONFIDENCE` of the time, whatever that is.

    It runs from the k-th smallest to the k-th largest, by the binomial distribution (David and Nagaraja, Order
    Statistics, 2003, section 7.1).
    """
    ordered, count = sorted(values), len(values)
    outside = 2 / 2**count  # that all values are on one side of the median
    out = 1
    while 2 * out + 2 <= count and 1 - outside - 2 * math.comb(count, out) / 2**count >= CONFIDENCE:
        outside += 2 * math.comb(count, out) / 2**count
        out += 1
    return ordered[out - 1], ordered[count - out]


def _at(ordered: Sequence[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def standing(row: Row, eager: Row) -> Standing | None:
    """How a variant stands against the uncompiled call; ``None`` where one of them was not measured.

    A difference is within the noise where the intervals of the two overlap.
    """
    mine, theirs = row.warm, eager.warm
    if mine is None or theirs is None:
        return None
    (low, high), (eager_low, eager_high) = row.interval, eager.interval
    noise = low <= eager_high and eager_low <= high
    pays = None if noise else _pays_after(row.first, mine.median, eager.first, theirs.median)
    return Standing(theirs.median / mine.median, noise, pays)


def _pays_after(mine: Sequence[float], warm: float, theirs: Sequence[float], eager: float) -> int | None:
    """The least N with ``sum(mine) + (N - n) * warm <= sum(theirs) + (N - n) * eager``, of n first calls each."""
    if warm >= eager:
        return None
    extra = sum(mine) - sum(theirs)
    return len(mine) + max(0, math.ceil(extra / (eager - warm)))
