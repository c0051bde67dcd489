"""Folding with links: what makes a recording of a journal or a log, and writes the rows of ``link`` on the way.

The recording knows nothing of generated code. So the links are made by a digest around its own, which reads a generated
module when its event comes: the graphs that it was made of have come by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dynadiag.kernels.links import links_of
from dynadiag.kernels.survey import unit_of
from dynadiag.recording import opening, transfer
from dynadiag.recording.digest import Digest
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Event, Graph, Kernel, Link, Node, NodeOf

__all__ = ["LinkingDigest", "fold_in_place", "import_log", "open_any"]

_KEPT = ("inductor_output_code", "dynadiag_origins")


def open_any(path: Path) -> Recording:
    """As `recording.opening.open_any`, with links where a journal is folded."""
    return opening.open_any(path, LinkingDigest)


def fold_in_place(path: Path) -> None:
    """As `recording.opening.fold_in_place`, with links."""
    opening.fold_in_place(path, LinkingDigest)


def import_log(log: Path, output: Path, *, force: bool = False) -> transfer.Imported:
    """As `recording.transfer.import_log`, with links."""
    return transfer.import_log(log, output, force=force, digest=LinkingDigest)


class LinkingDigest:
    """The recording's own digest, and the links of each generated module after its event."""

    def __init__(self) -> None:
        self._digest = Digest()
        self._seen: dict[str, _Seen] = {}

    def event(self, event: Event, metadata: dict[str, Any], payload: Callable[[], str]) -> Iterator[object]:
        """The records that this event completes."""
        seen = self._seen.setdefault(event.compile_id, _Seen())
        for record in self._digest.event(event, metadata, payload):
            if isinstance(record, Graph | Kernel):
                seen.add(record, event, payload)
            elif isinstance(record, NodeOf):
                seen.add_node(record)
            yield record
        if event.kind in _KEPT:
            seen.keep(event, payload)
        if event.kind == "inductor_output_code":
            yield from _links(seen, event)

    def finish(self) -> Iterator[object]:
        """The records that the end of the log completes."""
        yield from self._digest.finish()


def _links(seen: _Seen, event: Event) -> tuple[Link, ...]:
    return links_of(unit_of(seen, event))


class _Seen:
    """What has come of one compile id so far, as `units` asks a recording for it."""

    def __init__(self) -> None:
        self._graphs: list[Graph] = []
        self._nodes: dict[int, list[Node]] = {}
        self._kernels: list[Kernel] = []
        self._events: list[Event] = []
        self._payloads: dict[int, Callable[[], str]] = {}
        self._sizes: dict[int, Event] = {}

    def add(self, record: Graph | Kernel, event: Event, payload: Callable[[], str]) -> None:
        """Take note of a record that an event made."""
        if isinstance(record, Kernel):
            self._kernels.append(record)
        else:
            self._graphs.append(record)
            self._payloads[record.event] = payload
            self._sizes[record.event] = event

    def add_node(self, record: NodeOf) -> None:
        """Take note of a node of a graph that was kept as data."""
        self._nodes.setdefault(record.graph, []).append(record.node)

    def keep(self, event: Event, payload: Callable[[], str]) -> None:
        """Take note of an event."""
        self._events.append(event)
        self._sizes[event.index] = event
        self._payloads[event.index] = payload

    def graphs(self) -> tuple[Graph, ...]:
        return tuple(self._graphs)

    def nodes(self, graph: int) -> tuple[Node, ...]:
        return tuple(self._nodes.get(graph, ()))

    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(self._kernels)

    def events(self, kind: str | None = None, name: str | None = None) -> Iterator[Event]:
        return iter([one for one in self._events if one.kind == kind and name is None])

    def event(self, index: int) -> Event:
        return self._sizes[index]

    def payload(self, event: int) -> str:
        return self._payloads[event]()
