"""An explanation: what torch.compile did with one program, as data for every view.

It is a pure function of a recording. The renderers (text, JSON, the browser) add no knowledge of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynadiag.explanation.breaks import break_findings, group_breaks, roots
from dynadiag.explanation.cache_bypass import bypass_findings
from dynadiag.explanation.coverage import Coverage, read_coverage
from dynadiag.explanation.cuda_graphs import CudaGraph, cuda_graph_findings, read_cuda_graphs, with_input_names
from dynadiag.explanation.exports import export_findings, read_exports
from dynadiag.explanation.failures import failure_findings
from dynadiag.explanation.findings import Finding, ranked
from dynadiag.explanation.headline import Headline, headline
from dynadiag.explanation.owner import owner_of
from dynadiag.explanation.program_end import program_findings
from dynadiag.explanation.recompiles import recompile_findings
from dynadiag.explanation.registry import Registry
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_end import read_end
from dynadiag.explanation.run_records import RunRecords, compiled_within_ddp, method_classes, torch_objects
from dynadiag.explanation.runtime_cost import CallCost, WarmCalls, costs, read_warm_calls
from dynadiag.explanation.skipped import (
    read_later_calls,
    read_modes,
    uncompiled_findings,
    with_later_calls,
    with_operators,
)
from dynadiag.explanation.source import ExplainedRecording, package_files
from dynadiag.explanation.timing import Timing, timing
from dynadiag.explanation.values import ValueTable, read_values, value_findings
from dynadiag.explanation.warm_up import AfterWarmUp, WarmUp, read_warm_up
from dynadiag.recording.code_origin import is_torch_file, original_name
from dynadiag.recording.digest.graphs import printed_inputs
from dynadiag.recording.package_files import PackageFiles
from dynadiag.recording.records import (
    EXPORT,
    Break,
    Compile,
    Graph,
    Guard,
    GuardFailure,
    Kernel,
    Recompile,
    Run,
    SkippedFrame,
    Symbol,
)
from dynadiag.recording.torch_text.sources import as_called, base_of

_ERROR = "dynamo_error"  # the artifact with the traceback of a failed compile
_KEPT = (("fx_graph", "hit"), ("fx_graph", "miss"))  # look-ups after which the code of a graph is in the cache
_CODE = "inductor_output_code"  # the event with a generated module


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that the views of one run show.

    ``findings`` is what the run has to tell, the most important first; ``headline`` is that in a sentence. The records
    below are what it was made from. ``sources`` maps a file to its text as it was recorded; a file whose text was not
    kept is not in it. ``notes`` are sentences on what could not be seen. ``warm`` is there where warm calls were
    profiled, as `dynadiag compare` does, ``coverage`` where operator calls were counted, ``values`` where the values of
    nodes were recorded. ``packages`` tells which files are a library's.
    """

    run: Run
    headline: Headline
    findings: tuple[Finding, ...]
    compiles: tuple[Compile, ...]
    breaks: tuple[Break, ...]
    skipped: tuple[SkippedFrame, ...]
    recompiles: tuple[Recompile, ...]
    graphs: tuple[Graph, ...]
    guards: tuple[Guard, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    sources: Mapping[str, str]
    notes: tuple[str, ...]
    timing: Timing | None
    warm: WarmCalls | None = None
    cuda_graphs: tuple[CudaGraph, ...] = ()
    coverage: Coverage | None = None
    export_count: int = 0
    warm_up: WarmUp | None = None
    values: ValueTable | None = None
    packages: PackageFiles = field(default_factory=PackageFiles)

    @property
    def roots(self) -> tuple[Break, ...]:
        """The breaks that are causes of their own, in the order torch met them."""
        return roots(self.breaks)

    @property
    def prices(self) -> tuple[tuple[Break, CallCost], ...]:
        """The roots that warm calls meet, with what each costs in a call, the dearest first."""
        paid = costs(self.breaks, self.warm)
        found = [(root, paid[root.index]) for root in self.roots if root.index in paid]
        return tuple(sorted(found, key=lambda pair: -pair[1].seconds))

    @property
    def break_count(self) -> int:
        """Root causes, not reports of them."""
        return len(self.roots)

    @property
    def split_count(self) -> int:
        """The root causes that break a graph: an exception ends the compile, and breaks none."""
        return sum(not item.fatal for item in self.roots)

    @property
    def graph_count(self) -> int:
        """Graphs that Dynamo handed to a backend, of each compile that of its last attempt."""
        return len({graph.compile_id for graph in self.graphs if graph.stage == "dynamo"})

    @property
    def recompile_count(self) -> int:
        return len(self.recompiles)


def explain(recording: ExplainedRecording, registry: Registry | None = None, *, after: int | None = 0) -> Explanation:
    """Explain a recording. `registry` is torch's list of graph breaks; by itself the installed torch's.

    With `after` None only what was compiled after the warm-up, if the recording has a mark; with a number of calls,
    if its warm-up is of so many.
    """
    known = Registry.installed() if registry is None else registry
    warm_up = read_warm_up(recording)
    reported = warm_up if warm_up is not None and after in (None, warm_up.calls) else None
    if reported is not None:
        recording = AfterWarmUp(recording, reported.late)
    guards = recording.guards()
    run = _records(recording, known, guards)
    findings = _findings(run)
    return Explanation(
        run=run.run,
        headline=headline(run, findings, recording.counts(), reported),
        findings=findings,
        compiles=tuple(run.compiles),
        breaks=tuple(run.breaks),
        skipped=tuple(run.skipped),
        recompiles=tuple(run.recompiles),
        graphs=tuple(run.graphs),
        guards=guards,
        kernels=recording.kernels(),
        symbols=tuple(run.symbols),
        sources=run.sources,
        notes=run.run.notes,
        timing=timing(run.compiles, run.recompiles, recording.lowered(), guards),
        warm=run.warm,
        packages=run.packages,
        cuda_graphs=run.cuda_graphs,
        coverage=run.coverage,
        warm_up=warm_up,
        export_count=sum(each.assumed is None for each in run.exports),
        values=run.values,
    )


def _records(recording: ExplainedRecording, registry: Registry, guards: Sequence[Guard]) -> RunRecords:
    """The records completed: with the names that the user wrote, causes of breaks, and guards in torch's words read."""
    breaks = group_breaks([registry.complete(item) for item in recording.breaks()])
    compiles = tuple(replace(item, function=original_name(item.function)) for item in recording.compiles())
    recompiles = tuple(_recompile(item) for item in recording.recompiles())
    graphs, symbols = recording.graphs(), recording.symbols()
    failed = {item.compile_id for item in compiles if item.outcome == "error"}
    nodes = {each.compile_id: recording.nodes(each.index) for each in graphs if _is_first(each, failed)}
    packages = package_files(recording)
    files = _files(breaks, compiles, recompiles, packages)
    files |= {node.span.file for each in nodes.values() for node in each}
    lookups = recording.cache_lookups()
    bypasses = tuple(item for item in lookups if item.outcome == "bypass")
    files |= set(recording.source_files()) if bypasses or not any(files) else set()
    end, exports = read_end(recording), read_exports(recording)
    files |= {frame.file for each in exports for frame in (*each.callers, *each.stack)} | {
        each.file for each in exports
    }
    files |= {frame.file for each in symbols if each.compile_id.startswith(EXPORT) for frame in each.user_stack}
    values = read_values(recording)
    files |= {each.span.file for each in values.nodes} if values is not None else set()
    cuda_graphs = read_cuda_graphs(recording)
    moved = {each.compile_id for each in cuda_graphs if each.inputs}
    stages = [
        (each.compile_id, each.stage, printed_inputs(recording.payload(each.event)))
        for each in graphs
        if each.compile_id in moved and each.stage in ("dynamo", "forward", "inference")
    ]
    cuda_graphs = with_input_names(cuda_graphs, stages, guards)
    files |= {each.file for each in cuda_graphs}
    files |= {frame.file for frame in end.stack} if end is not None else set()
    return RunRecords(
        run=recording.run,
        compiles=compiles,
        breaks=breaks,
        recompiles=recompiles,
        skipped=recording.skipped(),
        graphs=graphs,
        symbols=symbols,
        sources=_sources(recording, files),
        modules=method_classes(guards),
        warm=read_warm_calls(recording),
        tracebacks=_tracebacks(recording, failed),
        nodes=nodes,
        code=_code(recording, failed),
        bypasses=bypasses,
        code_cached={each.compile_id for each in lookups if (each.cache, each.outcome) in _KEPT},
        coverage=read_coverage(recording),
        end=end,
        modes=read_modes(recording),
        later_calls=read_later_calls(recording),
        exports=exports,
        values=values,
        torch_objects=torch_objects(guards),
        within_ddp=compiled_within_ddp(recording, compiles),
        cuda_graphs=cuda_graphs,
        packages=packages,
    )


def _findings(run: RunRecords) -> tuple[Finding, ...]:
    """All findings of a run, ranked."""
    found = [*break_findings(run)]
    told = {id_ for item in found if item.rule == Rule.FAILED_COMPILE for id_ in item.compile_ids} | run.at_limit
    found += [*failure_findings(run, told), *export_findings(run, told)]
    found += recompile_findings(run, found)
    found += program_findings(run, found)
    found += uncompiled_findings(run, found)
    found += bypass_findings(run.bypasses, run.compiles, run.sources, run.code_cached)
    found += cuda_graph_findings(run.cuda_graphs, run.compiles, run.sources, run.packages)
    found += value_findings(run.values, run.sources)
    return ranked(with_later_calls(with_operators(found), run))


def _recompile(item: Recompile) -> Recompile:
    reasons = tuple(_of_wrapped(reason, item) for reason in item.reasons)
    return replace(item, function=original_name(item.function), reasons=reasons)


def _of_wrapped(reason: GuardFailure, item: Recompile) -> GuardFailure:
    """The failure as the wrapped callable sees it: torch's own wrapper around modules of its own and partials has it as
    ``fn``, a name that no program has. A partial's keyword is an argument of its function."""
    name = "partial" if item.function.startswith("partial(") else "self"
    if name == "self" and not is_torch_file(item.file):
        return reason
    guard, source, subject = (text and as_called(text, name) for text in (reason.guard, reason.source, reason.subject))
    terms = tuple(as_called(term, name) for term in reason.terms)
    return replace(reason, guard=guard or "", source=source, subject=subject, terms=terms, base=_base(reason, subject))


def _base(reason: GuardFailure, subject: str | None) -> str | None:
    """Where a value is kept, as the wrapped callable sees it: a keyword of a partial is an argument."""
    base = base_of(subject)
    return base if base == "argument" else reason.base


def _is_first(graph: Graph, compile_ids: set[str]) -> bool:
    return graph.stage == "dynamo" and graph.compile_id in compile_ids


def _tracebacks(recording: ExplainedRecording, compile_ids: set[str]) -> dict[str, str]:
    """torch's traceback of each of these compiles."""
    return _payloads(recording, "artifact", _ERROR, compile_ids)


def _code(recording: ExplainedRecording, compile_ids: set[str]) -> dict[str, str]:
    """The generated module of each of these compiles."""
    return _payloads(recording, _CODE, None, compile_ids)


def _payloads(recording: ExplainedRecording, kind: str, name: str | None, compile_ids: set[str]) -> dict[str, str]:
    """The payload of the last event of a kind in each of these compiles.

    After `torch._dynamo.reset` torch counts from 0 again, and the recording tells the compiles apart ("0/0#2") but not
    their events. Then only as many events as compiles can be told apart.
    """
    found: dict[str, list[int]] = {}
    for each in recording.events(kind) if compile_ids else ():
        if name in (None, each.name):
            found.setdefault(each.compile_id, []).append(each.index)
    made = {}
    for first, events in found.items():
        alike = sorted((id_ for id_ in compile_ids if id_.partition("#")[0] == first), key=_generation)
        if alike == [first]:
            made[first] = events[-1]
        elif len(alike) == len(events):
            made |= dict(zip(alike, events, strict=True))
    return {id_: recording.payload(event) for id_, event in made.items()}


def _generation(compile_id: str) -> int:
    number = compile_id.partition("#")[2]
    return int(number) if number.isdecimal() else 1


def _files(
    breaks: Iterable[Break], compiles: Iterable[Compile], recompiles: Iterable[Recompile], packages: PackageFiles
) -> set[str | None]:
    """Every file that a view may quote a line of, or that has the call of what was compiled again."""
    again = {item.compile_id for item in recompiles}
    files = {item.span.file for item in breaks} | {frame.file for item in breaks for frame in item.user_stack}
    for compile_ in compiles:
        files.add(compile_.file)
        users = owner_of(compile_.file, packages).is_user
        if compile_.outcome == "error" or compile_.compile_id in again or not users:
            files.update(frame.file for frame in compile_.user_stack)
    for recompile in recompiles:
        files.update({recompile.file, *(reason.file for reason in recompile.reasons)})
    return files


def _sources(recording: ExplainedRecording, files: set[str | None]) -> dict[str, str]:
    texts = {file: recording.source(file) for file in sorted(file for file in files if file)}
    return {file: text for file, text in texts.items() if text is not None}
