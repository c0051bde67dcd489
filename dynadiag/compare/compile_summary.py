"""A summary of the compiles of one variant, read from its recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.runtime_cost import CacheEntryRun, CallCost, WarmCalls, entries
from dynadiag.explanation.source import event_data
from dynadiag.explanation.timing import shares
from dynadiag.kernels.module_parser import parse_module
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Break, Compile, Kernel

__all__ = ["CompileSummary", "read_summary"]


@dataclass(frozen=True, slots=True)
class CompileSummary:
    """What was compiled in one variant.

    ``seconds`` is the time of all compiles, ``parts`` the same by part of the compiler. ``generated`` and ``extern``
    count the kernel calls in the last compiled code: Inductor's own kernels, and library kernels. One call of the
    function launches that many if it runs each piece of code once. ``no_graphs`` says why nothing was compiled, if
    nothing was. ``cached``: some code came from torch's cache. ``warm``, ``prices`` (the breaks with their costs)
    and ``entries`` describe the profiled warm calls.
    """

    seconds: float
    parts: tuple[tuple[str, float], ...]
    graphs: int
    breaks: int
    recompiles: int
    generated: int
    extern: int
    cached: bool
    no_graphs: str | None
    no_cudagraphs: tuple[str, ...]
    notes: tuple[str, ...]
    warm: WarmCalls | None = None
    prices: tuple[tuple[Break, CallCost], ...] = ()
    entries: tuple[CacheEntryRun, ...] = ()
    cwd: str | None = None


def read_summary(path: Path) -> CompileSummary:
    """Summarize the recording, or the journal, of a variant."""
    with open_recording(path) as recording:
        return _summarize(explain(recording), recording)


def _summarize(explanation: Explanation, recording: Recording) -> CompileSummary:
    parts = _parts(explanation.compiles)
    calls = [
        call
        for event in _latest_module_events(explanation.kernels)
        for call in parse_module(recording.payload(event)).calls
    ]
    return CompileSummary(
        seconds=sum(parts.values()),
        parts=tuple(parts.items()),
        graphs=explanation.graph_count,
        breaks=explanation.break_count,
        recompiles=explanation.recompile_count,
        generated=sum(call.is_generated for call in calls),
        extern=sum(not call.is_generated for call in calls),
        cached=any(item.cache == "hit" for item in explanation.compiles),
        no_graphs=None if explanation.graph_count else explanation.headline.sentence,
        no_cudagraphs=_no_cudagraphs(recording),
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


def _latest_module_events(kernels: Iterable[Kernel]) -> tuple[int, ...]:
    """The events that hold the generated modules of each frame's last compile. Earlier ones are for other inputs."""
    last: dict[str, str] = {}
    events: dict[int, str] = {}
    for kernel in kernels:
        last[kernel.compile_id.rpartition("/")[0]] = kernel.compile_id
        if kernel.event is not None:
            events[kernel.event] = kernel.compile_id
    return tuple(event for event, compile_id in events.items() if compile_id in last.values())


def _no_cudagraphs(recording: Recording) -> tuple[str, ...]:
    """The reasons why Inductor skipped CUDA graphs although they were requested, each once."""
    found: dict[str, None] = {}
    for kind in ("compilation_metrics", "bwd_compilation_metrics"):
        for _, metrics in event_data(recording, kind):
            if reason := metrics.get("cudagraph_skip_reason"):
                found[str(reason)] = None
    return tuple(found)
