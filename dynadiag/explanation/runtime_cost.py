"""What happens in a warm call: which compiled code it runs, what finding it takes, and what each break costs.

`dynadiag compare` profiles some warm calls of a variant and writes what it saw into the variant's recording
(``dynadiag_warm``): for each piece of compiled code, by the code that led to it, how often it ran, the time in which
its guards were checked, and the time that it spent outside its graph. Here that becomes costs.

What a break costs in a call is the time from the end of a graph to the start of the next: the Python that stands
there, the operators that run uncompiled, the look-up of the code that goes on, and the way into its graph. Time is laid
to the code that it passes in; that code ended with a break, and the break has a root cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec

from dynadiag.explanation.source import ExplainedRecording, first_payload
from dynadiag.recording.records import Break, Compile

WARM = "dynadiag_warm"  # the kind of the event

# What was measured: never less than nothing, and finite, as JSON has no other numbers.
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class CodeRun:
    """One compiled code as another led to it (``parent``, None for the program itself), in one warm call.

    Seconds are medians over the calls, counts are means. ``guard`` is the look-up that found the code, ``before`` its
    own time up to its graph, ``after`` its own time from then on (all of it where it calls no graph), without what it
    led to. ``operators`` ran uncompiled in that time (without those that only view a tensor, or allocate one),
    ``launches`` are calls of CUDA's launching functions there.
    """

    compile_id: str
    parent: str | None
    calls: Amount
    graphs: Amount
    guard: Amount
    before: Amount
    after: Amount
    operators: Amount
    launches: Amount


@dataclass(frozen=True, slots=True)
class WarmCalls:
    """``calls`` profiled calls of ``seconds`` each (a median; the profiler makes them slower than unobserved ones).

    ``outside`` and ``outside_operators`` are what passed in no compiled code at all. ``others`` names what ran in calls
    with other arguments that were made apart. ``backwards`` counts the compiled backwards that a call ran in itself.
    """

    calls: Annotated[int, msgspec.Meta(ge=0)]
    seconds: Amount
    outside: Amount
    outside_operators: Amount
    uses: tuple[CodeRun, ...]
    others: tuple[str, ...] = ()
    backwards: Amount = 0.0


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a break costs in one warm call: the seconds in all, of which ``guard`` is for checking guards;
    ``entries`` are runs of compiled code that it adds, ``graphs`` those that call a graph."""

    seconds: float
    guard: float
    entries: float
    graphs: float
    operators: float
    launches: float


@dataclass(frozen=True, slots=True)
class CacheEntryRun:
    """A compiled code: how often a warm call runs it, and the seconds in which its guards are checked each time.

    ``run`` says that some call ran it again, one with other arguments included; ``guard`` is None where none did.
    """

    compile: Compile
    calls: float
    guard: float | None
    run: bool


def read_warm_calls(recording: ExplainedRecording) -> WarmCalls | None:
    """The profile of warm calls that a recording has; None where it has none, or none that can be read."""
    return first_payload(recording, WARM, WarmCalls)


def costs(breaks: Sequence[Break], warm: WarmCalls | None) -> dict[int, CallCost]:
    """Index of a root cause -> what it costs in a warm call; without those that no warm call meets.

    Where one break alone left a whole function to Python, what passed in no compiled code is its cost.
    """
    if warm is None:
        return {}
    root_of = {item.compile_id: _root(item) for item in breaks if not item.fatal}
    parts: dict[int, list[CallCost]] = {}
    for use in warm.uses:
        if use.compile_id in root_of:
            parts.setdefault(root_of[use.compile_id], []).append(_ended(use))
        if use.parent in root_of:
            parts.setdefault(root_of[use.parent], []).append(_went_on(use))
    if (whole := _left_to_python(root_of, warm)) is not None:
        parts.setdefault(whole, []).append(CallCost(warm.outside, 0.0, 0.0, 0.0, warm.outside_operators, 0.0))
    return {index: total(found) for index, found in parts.items()}


def entries(compiles: Sequence[Compile], warm: WarmCalls | None) -> tuple[CacheEntryRun, ...]:
    """Every code that was compiled, those that a warm call runs most often first; none without a profile."""
    if warm is None:
        return ()
    found = [_entry(item, warm) for item in compiles if item.outcome in ("ok", "break")]
    return tuple(sorted(found, key=lambda entry: -entry.calls))


def _entry(item: Compile, warm: WarmCalls) -> CacheEntryRun:
    uses = [use for use in warm.uses if use.compile_id == item.compile_id]
    calls = sum(use.calls for use in uses)
    guard = sum(use.guard for use in uses) / calls if calls else None
    return CacheEntryRun(item, calls, guard, bool(uses) or item.compile_id in warm.others)


def _root(item: Break) -> int:
    return item.index if item.cause is None else item.cause


def _ended(use: CodeRun) -> CallCost:
    """What passes between the graph of a code that a break ended and what comes next."""
    return CallCost(use.after, 0.0, 0.0, 0.0, use.operators, use.launches)


def _went_on(use: CodeRun) -> CallCost:
    """What finding and entering the code takes that goes on after a break."""
    return CallCost(use.guard + use.before, use.guard, use.calls, use.graphs, 0.0, 0.0)


def _left_to_python(root_of: Mapping[str, int], warm: WarmCalls) -> int | None:
    ran = {use.compile_id for use in warm.uses}
    roots = {root for compile_id, root in root_of.items() if compile_id not in ran}
    return roots.pop() if len(roots) == 1 and warm.outside_operators else None


def total(parts: Sequence[CallCost]) -> CallCost:
    """What several breaks cost together."""

    def summed(of: Callable[[CallCost], float]) -> float:
        return math.fsum(map(of, parts))

    return CallCost(
        seconds=summed(lambda part: part.seconds),
        guard=summed(lambda part: part.guard),
        entries=summed(lambda part: part.entries),
        graphs=summed(lambda part: part.graphs),
        operators=summed(lambda part: part.operators),
        launches=summed(lambda part: part.launches),
    )
