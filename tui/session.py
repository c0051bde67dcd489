"""The open recording, with caches of what was read and a count of the rows that were read.

Worker threads may call every method. All raise `UnreadableInput` if the recording is damaged.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dynadiag.recording.opening import is_running, open_recording
from dynadiag.recording.packing import is_packed
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import (
    CUT_SHORT,
    Break,
    CacheLookup,
    Compile,
    Event,
    Graph,
    Guard,
    Kernel,
    Node,
    Recompile,
    Run,
    SkippedFrame,
    Symbol,
    Trial,
)

if TYPE_CHECKING:
    from dynadiag.explanation.explanation import Explanation
    from tui.compiled_lines import CompiledLines
    from tui.node_values import NodeValues


_JOURNAL_SUFFIX = ".journal"  # a running search writes RECORDING.journal, which becomes RECORDING
_MAX_CACHED_GUARDS = 4  # compiles whose guards are cached
T = TypeVar("T")


class Session:
    """An open recording. ``live`` is true while its program, or its search, still writes it."""

    def __init__(self, path: Path, recording: Recording, *, live: bool) -> None:
        self.path, self.live = path, live
        self.recording = recording
        self.rows_read = 0  # rows fetched so far, for the benchmark
        self._lock = threading.Lock()
        self.kernel_count = self.trial_count = 0  # known once the explanation is read
        self._explanation: Explanation | None = None
        self._kernels: tuple[Kernel, ...] | None = None
        self._compiled_lines: CompiledLines | None = None
        self._values: NodeValues | None = None
        self._guards: OrderedDict[str, tuple[Guard, ...]] = OrderedDict()

    @classmethod
    def open(cls, path: Path) -> Session:
        """Open a recording, or the journal of a program or search that still runs. Raises `UnreadableInput`."""
        beside = Path(f"{path}{_JOURNAL_SUFFIX}")
        if beside.is_file() and not path.exists():
            path = beside
        recording = open_recording(path)
        return cls(path, recording, live=not is_packed(path.parent) and is_running(path))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.recording.close()

    @property
    def final_path(self) -> Path:
        """Where the recording is once it is whole."""
        return Path(str(self.path).removesuffix(_JOURNAL_SUFFIX))

    @property
    def run(self) -> Run:
        """The recorded run."""
        return self.recording.run

    def explanation(self) -> Explanation:
        """Return the explanation, computed once. It has no guards, no kernels and only Dynamo's graphs."""
        with self._lock:
            if self._explanation is None:
                # imported in a worker: the first screen does not need it
                from dynadiag.explanation.explanation import explain

                made = explain(_SummaryRecording(self))
                totals = self.recording.totals()
                self.kernel_count, self.trial_count = totals.get("kernel", 0), totals.get("trial", 0)
                self._explanation = _mark_running(made) if self.live else made
            return self._explanation

    @property
    def known_explanation(self) -> Explanation | None:
        """The explanation if it has been computed, otherwise ``None``."""
        return self._explanation

    def count_rows(self, rows: Sequence[T]) -> Sequence[T]:
        """Count rows that were read, and return them."""
        self.rows_read += len(rows)
        return rows

    def compile(self, compile_id: str) -> Compile | None:
        """Return the compile with this id, or ``None``. If torch was reset in between, return the last one."""
        return next((item for item in reversed(self.explanation().compiles) if item.compile_id == compile_id), None)

    def graphs(self, compile_id: str) -> tuple[Graph, ...]:
        """Return the graphs of a compile."""
        return tuple(self.count_rows(self.recording.graphs(compile_id)))

    def kernels(self, compile_id: str) -> tuple[Kernel, ...]:
        """Return the kernels of a compile."""
        return tuple(self.count_rows(self.recording.kernels(compile_id)))

    def all_kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels of all compiles, read once. The first screen does not wait for them."""
        with self._lock:
            if self._kernels is None:
                self._kernels = tuple(self.count_rows(self.recording.kernels()))
            return self._kernels

    def compiled_lines(self) -> CompiledLines:
        """Return the compiles of each source line, read once."""
        from tui.compiled_lines import CompiledLines  # only the Code screen needs it

        explanation = self.explanation()
        with self._lock:
            if self._compiled_lines is None:
                graphs = self.count_rows(explanation.graphs)
                self._compiled_lines = CompiledLines(self.recording, explanation.compiles, graphs)
            return self._compiled_lines

    def node_values(self) -> NodeValues | None:
        """Return the recorded values of nodes, ``None`` if there are none."""
        from tui.node_values import NodeValues  # as above

        table = self.explanation().values
        with self._lock:
            if self._values is None and table is not None:
                self._values = NodeValues(table)
            return self._values

    def guards(self, compile_id: str) -> tuple[Guard, ...]:
        """Return the guards of a compile."""
        with self._lock:
            if (known := self._guards.get(compile_id)) is not None:
                self._guards.move_to_end(compile_id)
                return known
        found = tuple(self.count_rows(self.recording.guards(compile_id)))
        with self._lock:
            self._guards[compile_id] = found
            if len(self._guards) > _MAX_CACHED_GUARDS:
                self._guards.popitem(last=False)
        return found

    def trials(self) -> tuple[Trial, ...]:
        """Return the trials of a search."""
        return tuple(self.count_rows(self.recording.trials()))

    def events(self, start: int, limit: int) -> list[Event]:
        """Return events of the log by number. Events have no gaps, so this is a lookup and not a scan."""
        found = []
        for index in range(start, start + limit):
            found.append(self.recording.event(index))
        self.count_rows(found)
        return found

    def events_of(self, kind: str, start: int, limit: int) -> list[Event]:
        """Return events of one kind."""
        return list(self.count_rows(list(self.recording.events(kind=kind, start=start, limit=limit))))

    def source(self, file: str) -> str | None:
        """Return the recorded text of a source file, or ``None``."""
        known = self.explanation().sources.get(file)
        if known is None:
            self.rows_read += 1
            known = self.recording.source(file)
        return known

    def payload(self, event: int) -> str:
        """Return the payload of an event."""
        self.rows_read += 1
        return self.recording.payload(event)

    def nodes(self, graph: int, start: int = 0, limit: int | None = None) -> Sequence[Node]:
        """Return nodes of a graph that were recorded as data."""
        return self.count_rows(self.recording.nodes(graph, start, limit))


def _mark_running(explanation: Explanation) -> Explanation:
    """Mark unfinished compiles as running. They did not fail: the recording only ends there so far."""
    compiles = (
        replace(item, outcome="running", reason=None) if item.outcome == "error" and not item.error else item
        for item in explanation.compiles
    )
    notes = tuple(note for note in explanation.notes if note != CUT_SHORT)
    return replace(explanation, compiles=tuple(compiles), notes=notes)


class _SummaryRecording:
    """The part of a recording that the summary screens need.

    There may be 10,000 guards on one frame, and ten graphs and a hundred kernels in a compile. Those of a compile are
    read when the user looks at it. Only Dynamo's graphs are counted.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._recording = session.recording

    @property
    def run(self) -> Run:
        return self._recording.run

    def compiles(self) -> tuple[Compile, ...]:
        return tuple(self._session.count_rows(self._recording.compiles()))

    def graphs(self, _compile_id: str | None = None) -> tuple[Graph, ...]:
        return tuple(self._session.count_rows(self._recording.graphs_at("dynamo")))

    def lowered(self) -> frozenset[str]:
        return self._recording.lowered()

    def guards(self, _compile_id: str | None = None) -> tuple[Guard, ...]:
        return ()

    def nodes(self, graph: int) -> tuple[Node, ...]:
        return tuple(self._session.count_rows(self._recording.nodes(graph)))

    def breaks(self) -> tuple[Break, ...]:
        return tuple(self._session.count_rows(self._recording.breaks()))

    def recompiles(self) -> tuple[Recompile, ...]:
        return tuple(self._session.count_rows(self._recording.recompiles()))

    def skipped(self) -> tuple[SkippedFrame, ...]:
        return tuple(self._session.count_rows(self._recording.skipped()))

    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(self._session.count_rows(self._recording.symbols()))

    def kernels(self) -> tuple[Kernel, ...]:
        return ()

    def cache_lookups(self) -> tuple[CacheLookup, ...]:
        return tuple(self._session.count_rows(self._recording.cache_lookups()))

    def source_files(self) -> tuple[str, ...]:
        return self._recording.source_files()

    def source(self, file: str) -> str | None:
        self._session.rows_read += 1
        return self._recording.source(file)

    def records(self, record: type[T]) -> tuple[T, ...]:
        return tuple(self._session.count_rows(self._recording.records(record)))

    def counts(self) -> dict[str, int]:
        return self._recording.counts()

    def events(self, kind: str | None = None, *, compile_id: str | None = None) -> Iterator[Event]:
        """Yield the events of a kind, without those on CUDA graphs, which no screen shows."""
        from dynadiag.explanation.cuda_graphs import CUDA_GRAPH_EVENTS  # as above

        for event in () if kind in CUDA_GRAPH_EVENTS else self._recording.events(kind, compile_id=compile_id):
            self._session.rows_read += 1
            yield event

    def metadata(self, event: int) -> dict[str, Any]:
        return self._recording.metadata(event)

    def payload(self, event: int) -> str:
        return self._recording.payload(event)
