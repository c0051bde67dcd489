"""Fold a journal or a log into a recording and write the rows of its link table.

The recording package knows nothing about generated code. So a digest around the recording's own digest makes the links.
It reads a generated module when its event comes, because the events of its graphs come earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dynadiag.kernels.links import module_links
from dynadiag.kernels.read_modules import read_module
from dynadiag.recording import import_export, opening
from dynadiag.recording.digest import Digest
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Event, Graph, GraphNode, Kernel, Node

__all__ = ["LinkDigest", "fold_with_links", "import_with_links", "open_with_links"]

_KEPT_KINDS = ("inductor_output_code", "dynadiag_origins")
_CACHE_OUTCOME = "fx_graph_cache_"


def open_with_links(path: Path) -> Recording:
    """Open a recording, a journal or a log, as `recording.opening.open_recording` does. A folded journal gets links."""
    return opening.open_recording(path, LinkDigest)


def fold_with_links(path: Path) -> None:
    """Fold a journal in place, as `recording.opening.fold_in_place` does, with links."""
    opening.fold_in_place(path, LinkDigest)


def import_with_links(log: Path, output: Path, *, force: bool = False) -> import_export.ImportResult:
    """Import a log, as `recording.import_export.import_log` does, with links."""
    return import_export.import_log(log, output, force=force, digest=LinkDigest)


class LinkDigest:
    """The recording's own digest, plus the links of each generated module at the end of the log."""

    def __init__(self) -> None:
        self._digest = Digest()
        self._compiles: dict[str, _CompileState] = {}
        self._modules: list[tuple[_CompileState, Event]] = []

    def event(self, event: Event, metadata: dict[str, Any], payload: Callable[[], str]) -> Iterator[object]:
        """Yield the records that this event completes."""
        seen = self._compiles.setdefault(event.compile_id, _CompileState())
        for record in self._digest.event(event, metadata, payload):
            if isinstance(record, Graph | Kernel):
                seen.add(record, event, payload)
            elif isinstance(record, GraphNode):
                seen.add_node(record)
            yield record
        if event.kind in _KEPT_KINDS or (event.name or "").startswith(_CACHE_OUTCOME):
            seen.keep(event, payload)
        if event.kind == "inductor_output_code":
            self._modules.append((seen, event))

    def finish(self) -> Iterator[object]:
        """Yield the records that the end of the log completes."""
        yield from self._digest.finish()
        for seen, event in self._modules:
            yield from module_links(read_module(seen, event))


class _CompileState:
    """The events and records of one compile id so far. It implements `CompileReader`."""

    def __init__(self) -> None:
        self._graphs: list[Graph] = []
        self._nodes: dict[int, list[Node]] = {}
        self._kernels: list[Kernel] = []
        self._events: list[Event] = []
        self._payloads: dict[int, Callable[[], str]] = {}
        self._events_by_index: dict[int, Event] = {}

    def add(self, record: Graph | Kernel, event: Event, payload: Callable[[], str]) -> None:
        """Add a record that an event made."""
        if isinstance(record, Kernel):
            self._kernels.append(record)
        else:
            self._graphs.append(record)
            self._payloads[record.event] = payload
            self._events_by_index[record.event] = event

    def add_node(self, record: GraphNode) -> None:
        """Add a node of a graph that was recorded as data."""
        self._nodes.setdefault(record.graph, []).append(record.node)

    def keep(self, event: Event, payload: Callable[[], str]) -> None:
        """Keep an event with its payload."""
        self._events.append(event)
        self._events_by_index[event.index] = event
        self._payloads[event.index] = payload

    def graphs(self) -> tuple[Graph, ...]:
        return tuple(self._graphs)

    def nodes(self, graph: int) -> tuple[Node, ...]:
        return tuple(self._nodes.get(graph, ()))

    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(self._kernels)

    def events(self, kind: str | None = None, name: str | None = None) -> Iterator[Event]:
        return iter([one for one in self._events if one.kind == kind and name in (None, one.name)])

    def event(self, index: int) -> Event:
        return self._events_by_index[index]

    def payload(self, event: int) -> str:
        return self._payloads[event]()
