"""Measures which rank waited for which in collectives, on one clock.

A rank cannot begin its next collective before all have begun this one. So each pair of collectives bounds how far the
clocks of two hosts are apart. This holds for collectives that block the program. Those of NCCL run asynchronously and
are not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynadiag.job.processes import Process
from dynadiag.job.trace import CollectiveStep

_BLOCKING = ("gloo", "mpi")


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds that a rank waited in collectives for others, and that others waited because it came last."""

    waited: float
    imposed: float


def measure_waits(ranks: Sequence[Process]) -> dict[int, Wait]:
    """Return the waits by rank. Empty if they cannot be known: asynchronous collectives, clocks that contradict."""
    times = _times(ranks)
    offsets = clock_offsets(ranks)
    if not times or any(each.host not in offsets for each in ranks):
        return {}
    shifts = [offsets[each.host] for each in ranks]
    waited, imposed = [0.0] * len(ranks), [0.0] * len(ranks)
    for moment in zip(*times, strict=True):
        began = [time - shift for time, shift in zip(moment, shifts, strict=True)]
        last = max(range(len(ranks)), key=began.__getitem__)
        for index, time in enumerate(began):
            waited[index] += began[last] - time
            imposed[last] += began[last] - time
    return {each.rank or 0: Wait(waited[index], imposed[index]) for index, each in enumerate(ranks)}


def clock_offsets(ranks: Sequence[Process]) -> dict[str | None, float]:
    """Return how far each host's clock is ahead of the first rank's, in seconds: 0 where it may be the same.

    A host whose bounds contradict each other is left out.
    """
    times = _times(ranks)
    found: dict[str | None, float] = {ranks[0].host: 0.0} if ranks else {}
    for index, each in enumerate(ranks):
        if times and each.host not in found:
            low, high = _bounds(times[index], times[0])
            if low <= high:
                found[each.host] = 0.0 if low <= 0 <= high else (low + high) / 2
    return found


def _bounds(own: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The least and the most that one clock can be ahead of another."""
    low = max((own[place] - other[place + 1] for place in range(len(own) - 1)), default=float("-inf"))
    high = min((own[place + 1] - other[place] for place in range(len(own) - 1)), default=float("inf"))
    return low, high


def _times(ranks: Sequence[Process]) -> list[Sequence[float]]:
    """When each rank began the collectives that all have in common; empty if these do not block, or there are none."""
    traces = [each.trace for each in ranks]
    found, steps = [], []
    for trace in traces:
        if trace is None or not (trace.backend or "").startswith(_BLOCKING):
            return []
        steps.append([step for step in trace.steps if isinstance(step, CollectiveStep)])
        found.append(trace.times)
    common = _common([[step.label for step in each] for each in steps])
    if any(step.collective.is_async for step in (steps[0][:common] if steps else ())):
        return []
    return [each[:common] for each in found] if common else []


def _common(labels: Sequence[Sequence[object]]) -> int:
    """How many collectives are the same on all ranks from the first one on."""
    number = min(map(len, labels), default=0)
    return next((place for place in range(number) if any(each[place] != labels[0][place] for each in labels)), number)
