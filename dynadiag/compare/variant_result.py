"""The result of one variant: its times, a summary of its compiles, and its speed relative to the uncompiled call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.compare.call_kernels import CallKernels, kernels_of_a_call
from dynadiag.compare.variant import Variant
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.runtime_cost import CacheEntryRun, CallCost, WarmCalls, entries
from dynadiag.explanation.source import event_data
from dynadiag.explanation.timing import shares
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Break, Compile
from dynadiag.trial.signature import Signature

CONFIDENCE = 15 / 16  # of an interval: with five rounds, the interval from the smallest to the largest has it
MIN_ROUNDS = 5  # that have an interval of this confidence


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak memory in bytes.

    ``host`` is, of the first calls, the growth of the process's resident memory (VmHWM), which holds what compiling
    needs; of a warm call, what its tensors held at once. ``device`` is ``torch.cuda.max_memory_allocated``, which
    includes memory that was allocated before.
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
    call in each block; ``yardstick`` the time of work that is the same in all programs. ``inputs`` has one for each
    call with other arguments.
    """

    variant: Variant
    failure: Signature | None = None
    first: tuple[float, ...] = ()
    rounds: tuple[tuple[float, ...], ...] = ()
    yardstick: tuple[float, ...] = ()
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

    @property
    def range(self) -> tuple[float, float]:
        """The interval within which another run of this may lie, which is not measured in turn with it (seconds).

        It reaches over the medians of all rounds. Needs at least one round.
        """
        medians = [quartiles(times).median for times in self.rounds]
        low, high = self.confidence_interval
        return min(low, *medians), max(high, *medians)


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
    while 1 - outside - 2 * math.comb(count, out) / 2**count >= CONFIDENCE:
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


@dataclass(frozen=True, slots=True)
class CompileSummary:
    """What was compiled in one variant.

    ``seconds`` is the time of all compiles, ``parts`` the same by part of the compiler. ``kernels`` counts what a warm
    call runs on a CPU, None where that is not known. ``no_graphs`` says why nothing was compiled, if
    nothing was. ``cached``: some code came from torch's cache. ``warm``, ``prices`` (the breaks with their costs)
    and ``entries`` describe the profiled warm calls.
    """

    seconds: float
    parts: tuple[tuple[str, float], ...]
    graphs: int
    breaks: int
    recompiles: int
    kernels: CallKernels | None
    cached: bool
    no_graphs: str | None
    no_cudagraphs: tuple[str, ...]
    notes: tuple[str, ...]
    warm: WarmCalls | None = None
    prices: tuple[tuple[Break, CallCost], ...] = ()
    entries: tuple[CacheEntryRun, ...] = ()
    cwd: str | None = None


def read_summary(path: Path, step: str) -> CompileSummary:
    """Summarize the recording, or the journal, of a variant that was called in this ``step``."""
    with open_recording(path) as recording:
        return _summarize(explain(recording), recording, step)


def _summarize(explanation: Explanation, recording: Recording, step: str) -> CompileSummary:
    parts = _parts(explanation.compiles)
    # The reasons why Inductor skipped CUDA graphs although they were requested, each once.
    found: dict[str, None] = {}
    for kind in ("compilation_metrics", "bwd_compilation_metrics"):
        for _, metrics in event_data(recording, kind):
            if reason := metrics.get("cudagraph_skip_reason"):
                found[str(reason)] = None
    return CompileSummary(
        seconds=sum(parts.values()),
        parts=tuple(parts.items()),
        graphs=explanation.graph_count,
        breaks=explanation.break_count,
        recompiles=explanation.recompile_count,
        kernels=kernels_of_a_call(recording, explanation.warm, step),
        cached=any(item.cache == "hit" for item in explanation.compiles),
        no_graphs=None if explanation.graph_count else explanation.headline.sentence,
        no_cudagraphs=tuple(found),
        notes=explanation.notes,
        warm=explanation.warm,
        prices=explanation.prices,
        entries=entries(explanation.compiles, explanation.warm),
        cwd=explanation.run.cwd,
    )


def _parts(compiles: Iterable[Compile]) -> dict[str, float]:
    found: dict[str, float] = {}
    for item in compiles:
        for share in shares(item.seconds):
            found[share.part] = found.get(share.part, 0.0) + share.seconds
    return found
