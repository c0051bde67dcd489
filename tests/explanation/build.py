"""Records and recordings built by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.records import (
    Break,
    CacheLookup,
    Compile,
    Event,
    Frame,
    Graph,
    Guard,
    GuardFailure,
    Kernel,
    Node,
    Recompile,
    Run,
    Seconds,
    SkippedFrame,
    Span,
    Symbol,
)
from dynadiag.recording.torch_text.breaks import read_facts
from dynadiag.recording.torch_text.guards import completed

RUN = Run(
    target="prog.py",
    argv=(),
    cwd="/home/user/project",
    torch="2.13.0",
    python="3.11.7",
    triton=None,
    device="cpu",
    rank=None,
    pid=1,
    started=None,
    seconds=2.5,
    exit_code=0,
    complete=True,
    notes=(),
)
FILE = "/home/user/project/prog.py"


def a_run(**changes: Any) -> Run:
    return replace(RUN, **changes)


def a_break(index: int = 0, **changes: Any) -> Break:
    made = Break(
        index=index,
        compile_id="0/0",
        gb_id="GB0170",
        gb_type="Data-dependent branching",
        reason="Data-dependent branching",
        explanation="Detected data-dependent branching.",
        hints=("Use `torch.cond`.",),
        span=Span(FILE, 3, 7, 3, 18),
        function="forward",
        user_stack=(Frame(FILE, 9, "<module>"), Frame(FILE, 3, "forward")),
        cause=None,
        fatal=False,
    )
    made = replace(made, **changes)
    return made if "facts" in changes else replace(made, facts=read_facts(made.explanation, index=index))


def a_compile(index: int = 0, compile_id: str = "0/0", **changes: Any) -> Compile:
    made = Compile(
        index=index,
        compile_id=compile_id,
        file=FILE,
        line=1,
        function="forward",
        user_stack=(Frame(FILE, 9, "<module>"),),
        outcome="ok",
        attempts=1,
        seconds=Seconds(1.0, 0.2, 0.7, 0.5, 0.3),
        guards=4,
        error=None,
        reason=None,
        cache="miss",
    )
    return replace(made, **changes)


def a_graph(index: int = 0, compile_id: str = "0/0", stage: str = "dynamo", nodes: int = 5, ops: int = 2) -> Graph:
    return Graph(index, compile_id, stage, nodes, ops, event=index)


def a_failure(guard: str, **changes: Any) -> GuardFailure:
    """A failure as a log has it: the facts are read from the text, and from the fields that are given."""
    made = GuardFailure(guard, source=None, was=None, now=None, against="0/0", file=None, line=None)
    return completed(replace(made, **changes))


def a_recompile(*guards: str, **changes: Any) -> Recompile:
    made = Recompile(
        index=0,
        compile_id="0/1",
        file=FILE,
        line=1,
        function="forward",
        reasons=tuple(a_failure(guard) for guard in guards),
        limit_reached=False,
    )
    return replace(made, **changes)


def records(**changes: Any) -> RunRecords:
    """A run's records for the functions that make findings of them."""
    names = ("compiles", "breaks", "recompiles", "skipped", "graphs", "symbols")
    maps = ("sources", "modules", "tracebacks", "nodes", "code")
    empty: dict[str, Any] = dict.fromkeys(names, ()) | {name: {} for name in maps}
    return RunRecords(**({"run": RUN, "warm": None} | empty | changes))


@dataclass
class FakeRecording:
    """A recording in memory, with the methods that explaining and drawing use."""

    run: Run = RUN
    compile_records: tuple[Compile, ...] = ()
    break_records: tuple[Break, ...] = ()
    recompile_records: tuple[Recompile, ...] = ()
    skipped_records: tuple[SkippedFrame, ...] = ()
    graph_records: tuple[Graph, ...] = ()
    guard_records: tuple[Guard, ...] = ()
    symbol_records: tuple[Symbol, ...] = ()
    kernel_records: tuple[Kernel, ...] = ()
    lookup_records: tuple[CacheLookup, ...] = ()
    node_records: Mapping[int, tuple[Node, ...]] = field(default_factory=dict)
    value_records: tuple[Any, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    event_counts: Mapping[str, int] = field(default_factory=dict)

    def compiles(self) -> tuple[Compile, ...]:
        return self.compile_records

    def breaks(self) -> tuple[Break, ...]:
        return self.break_records

    def recompiles(self) -> tuple[Recompile, ...]:
        return self.recompile_records

    def skipped(self) -> tuple[SkippedFrame, ...]:
        return self.skipped_records

    def graphs(self, compile_id: str | None = None) -> tuple[Graph, ...]:
        return tuple(g for g in self.graph_records if compile_id in (None, g.compile_id))

    def lowered(self) -> set[str]:
        return {each.compile_id for each in self.graph_records if each.stage != "dynamo"}

    def guards(self, compile_id: str | None = None) -> tuple[Guard, ...]:
        return tuple(g for g in self.guard_records if compile_id in (None, g.compile_id))

    def symbols(self) -> tuple[Symbol, ...]:
        return self.symbol_records

    def kernels(self) -> tuple[Kernel, ...]:
        return self.kernel_records

    def cache_lookups(self) -> tuple[CacheLookup, ...]:
        return self.lookup_records

    def source_files(self) -> tuple[str, ...]:
        return tuple(self.sources)

    def nodes(self, graph: int, start: int = 0, limit: int | None = None) -> tuple[Node, ...]:
        return self.node_records.get(graph, ())[start:][:limit]

    def records(self, record: type[Any]) -> tuple[Any, ...]:
        return tuple(each for each in self.value_records if isinstance(each, record))

    def source(self, file: str) -> str | None:
        return self.sources.get(file)

    def events(self, kind: str | None = None, *, compile_id: str | None = None) -> tuple[Event, ...]:
        return ()

    def metadata(self, event: int) -> dict[str, Any]:
        raise KeyError(event)

    def payload(self, event: int) -> str:
        raise KeyError(event)

    def counts(self) -> dict[str, int]:
        return dict(self.event_counts)
