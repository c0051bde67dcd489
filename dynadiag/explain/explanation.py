"""An explanation: what torch.compile did with one program, as data for every view.

It is a pure function of a recording. The renderers (text, JSON, the browser) add no knowledge of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dynadiag.explain.advice import advise
from dynadiag.explain.causes import group_breaks, roots
from dynadiag.explain.cuda_graphs import CudaGraph, read_cuda_graphs
from dynadiag.explain.frame_origin import method_classes
from dynadiag.explain.guards import complete
from dynadiag.explain.impact import Impact, impacts
from dynadiag.explain.registry import Registry
from dynadiag.explain.runtime_cost import EventLog, WarmCalls, read_warm_calls
from dynadiag.explain.source import ExplainedRecording
from dynadiag.explain.timing import Timing, timing
from dynadiag.explain.verdict import Verdict, verdict
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import (
    Break,
    Compile,
    Graph,
    Guard,
    Kernel,
    Recompile,
    Run,
    SkippedFrame,
    Symbol,
)
from dynadiag.recording.torch_names import original_name

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that the views of one run show.

    ``advice`` has one tuple for each recompile, in the same order. ``sources`` maps a file to its text as
    it was recorded; a file whose text was not kept is not in it. ``notes`` are sentences on what could not
    be seen. ``warm`` is there where warm calls were profiled, as `dynadiag compare` does.
    """

    run: Run
    compiles: tuple[Compile, ...]
    breaks: tuple[Break, ...]
    skipped: tuple[SkippedFrame, ...]
    recompiles: tuple[Recompile, ...]
    graphs: tuple[Graph, ...]
    guards: tuple[Guard, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    advice: tuple[tuple[str, ...], ...]
    sources: Mapping[str, str]
    notes: tuple[str, ...]
    timing: Timing | None
    verdict: Verdict
    modules: Mapping[str, str]  # compile id -> class of the object that the function is a method of
    warm: WarmCalls | None = None
    cuda_graphs: tuple[CudaGraph, ...] = ()

    @property
    def roots(self) -> tuple[Break, ...]:
        """The breaks that are causes of their own, in the order torch met them."""
        return roots(self.breaks)

    @property
    def impacts(self) -> tuple[Impact, ...]:
        """What each root led to, the worst first."""
        return impacts(self.breaks, self.graphs, self.recompiles, self.warm, self.skipped)

    def named(self, function: str, compile_ids: Iterable[str]) -> str:
        """A function's name; of a decorator's inner function also whose method it wraps, as one of the compiles knows
        (``with_defaults.<locals>.wrapper (of BertModel)``).
        """
        owner = next((self.modules[each] for each in compile_ids if each in self.modules), None)
        return f"{function} (of {owner})" if owner and "<locals>" in function else function

    @property
    def break_count(self) -> int:
        """Root causes, not reports of them."""
        return len(self.roots)

    @property
    def graph_count(self) -> int:
        """Graphs that Dynamo handed to a backend."""
        return sum(graph.stage == "dynamo" for graph in self.graphs)

    @property
    def recompile_count(self) -> int:
        return len(self.recompiles)


def explain(recording: ExplainedRecording, registry: Registry | None = None) -> Explanation:
    """Explain a recording. `registry` is torch's list of graph breaks; by itself the installed torch's."""
    known = Registry.installed() if registry is None else registry
    breaks = group_breaks([known.complete(item) for item in recording.breaks()])
    compiles = tuple(replace(item, function=original_name(item.function)) for item in recording.compiles())
    recompiles = tuple(_recompile(item) for item in recording.recompiles())
    graphs, skipped, guards = recording.graphs(), recording.skipped(), recording.guards()
    return Explanation(
        run=recording.run,
        compiles=compiles,
        breaks=breaks,
        skipped=skipped,
        recompiles=recompiles,
        graphs=graphs,
        guards=guards,
        modules=method_classes(guards),
        kernels=recording.kernels(),
        symbols=recording.symbols(),
        advice=tuple(advise(item) for item in recompiles),
        sources=_sources(recording, _files(breaks, compiles, recompiles)),
        notes=recording.run.notes,
        timing=timing(compiles, recompiles),
        verdict=verdict(
            recording.run, compiles, graphs, roots(breaks), skipped, recording.counts(), _given_up(recompiles)
        ),
        warm=read_warm_calls(recording) if isinstance(recording, EventLog) else None,
        cuda_graphs=read_cuda_graphs(recording) if isinstance(recording, Recording) else (),
    )


def _given_up(recompiles: Iterable[Recompile]) -> int:
    """Functions that torch stopped compiling."""
    return len({(item.file, item.line, item.function) for item in recompiles if item.limit_reached})


def _recompile(item: Recompile) -> Recompile:
    reasons = tuple(complete(reason) for reason in item.reasons)
    return replace(item, function=original_name(item.function), reasons=reasons)


def _files(breaks: Iterable[Break], compiles: Iterable[Compile], recompiles: Iterable[Recompile]) -> set[str]:
    """Every file that a view may quote a line of."""
    files = {item.span.file for item in breaks}
    files.update(item.file for item in compiles)
    for recompile in recompiles:
        files.update({recompile.file, *(reason.file for reason in recompile.reasons)})
    return {file for file in files if file}


def _sources(recording: ExplainedRecording, files: set[str]) -> dict[str, str]:
    texts = {file: recording.source(file) for file in sorted(files)}
    return {file: text for file, text in texts.items() if text is not None}
