"""What was found out about one variant, and how it stands against the uncompiled call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.compare.compiled import Compiled
from dynadiag.compare.variant import Variant
from dynadiag.trial.signature import Signature

__all__ = ["Gpu", "Peak", "Quartiles", "Row", "Standing", "quartiles", "standing"]


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
    """One warm call on a GPU, by torch.profiler. ``launches`` are calls of CUDA's launching functions: a CUDA graph of
    many kernels is one. ``triton_share`` is of the kernels' time, 0 to 1."""

    kernels: int
    launches: int
    triton_share: float | None


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

    ``first`` are the seconds of the first calls, one by one; ``times`` those of a warm call, block by block, of
    ``rounds`` rounds; ``inputs`` those of one call with each of other arguments.
    """

    variant: Variant
    failure: Signature | None = None
    first: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    rounds: int = 0
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
    def warm(self) -> Quartiles | None:
        return quartiles(self.times) if self.times else None


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


def _at(ordered: Sequence[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def standing(row: Row, eager: Row) -> Standing | None:
    """How a variant stands against the uncompiled call; ``None`` where one of them was not measured.

    A difference is within the noise where the middle halves of the two overlap: a test that asks for no distribution,
    and that a machine which drifts while both are measured makes stricter.
    """
    mine, theirs = row.warm, eager.warm
    if mine is None or theirs is None:
        return None
    noise = mine.low <= theirs.high and theirs.low <= mine.high
    pays = None if noise else _pays_after(row.first, mine.median, eager.first, theirs.median)
    return Standing(theirs.median / mine.median, noise, pays)


def _pays_after(mine: Sequence[float], warm: float, theirs: Sequence[float], eager: float) -> int | None:
    """The least N with ``sum(mine) + (N - n) * warm <= sum(theirs) + (N - n) * eager``, of n first calls each."""
    if warm >= eager:
        return None
    extra = sum(mine) - sum(theirs)
    return len(mine) + max(0, math.ceil(extra / (eager - warm)))
