"""The rows of the recording's link table: which lines of a generated module's documents belong together.

There are four documents: the user's "source", "dynamo" (Dynamo's graph), "graph" (the graph that was lowered) and
"module" (the generated module with its kernels). A row links a line of one document with a line of another, and is read
in both directions. A row without a target line says that no mapping is known. When torch does not say which Dynamo
nodes a node came from (a log without our recorder), there is no row between them: they share a source line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dynadiag.kernels.generated_module import GeneratedModule, KernelCall, dynamo_nodes_of, reported_dynamo_nodes
from dynadiag.kernels.graph_parser import PrintedNode, SourceLine
from dynadiag.recording.records import Link

__all__ = ["DOCUMENTS", "Related", "Thread", "module_links"]

DOCUMENTS = ("source", "dynamo", "graph", "module")

LinkEnd = tuple[str, int | None, int, str | None]  # document, event, line, name


def module_links(unit: GeneratedModule) -> tuple[Link, ...]:
    """Return the link rows of a generated module, each once."""
    return tuple(dict.fromkeys(_LinkRows(unit).all()))


class _LinkRows:
    """Makes the rows of one module."""

    def __init__(self, unit: GeneratedModule) -> None:
        self._unit = unit

    def all(self) -> Iterator[Link]:
        for call in self._unit.calls:
            yield from self._call_links(call)
        if self._unit.graph_event is not None:
            yield from self._graph_links(self._unit.graph_event)
        if self._unit.dynamo_event is not None:
            yield from self._dynamo_links(self._unit.dynamo_event)

    def _link(self, start: LinkEnd, role: str, document: str, end: LinkEnd | None, how: str) -> Link:
        _, event, line, name = start
        _, to_event, to_line, to_name = end or ("", None, None, None)
        return Link(
            compile_id=self._unit.compile_id,
            module=self._unit.event,
            document=start[0],
            event=event or 0,
            line=line,
            name=name or "",
            role=role,
            to_document=document,
            to_event=to_event,
            to_line=to_line,
            to_name=to_name,
            how=how if end is not None else "none",
        )

    def _call_links(self, call: KernelCall) -> Iterator[Link]:
        yield from self._line_links(
            call, call.line, "call", dict.fromkeys(call.nodes + call.enclosing_nodes), call.evidence
        )
        for line in call.statements:
            yield from self._line_links(call, line.line, line.kind, line.nodes, "aligned")

    def _line_links(self, call: KernelCall, line: int, role: str, nodes: Iterable[str], how: str) -> Iterator[Link]:
        start = ("module", call.event, line, call.name)
        found: list[LinkEnd | None] = [self._node_end("graph", self._unit.graph.nodes[name]) for name in nodes]
        yield from (self._link(start, role, "graph", end, how) for end in found or [None])

    def _node_end(self, document: str, node: PrintedNode) -> LinkEnd:
        event = self._unit.graph_event if document == "graph" else self._unit.dynamo_event
        return document, event, node.line, node.name

    def _graph_links(self, event: int) -> Iterator[Link]:
        unit = self._unit
        called = {name for call in unit.calls for name in call.nodes + call.views + call.enclosing_nodes}
        for node in unit.graph.nodes.values():
            if not node.target:
                continue
            start = ("graph", event, node.line, node.name)
            sources = [unit.dynamo.nodes[name] for name in dynamo_nodes_of(unit, node)]
            yield from self._source_link(
                start, node.source_line or next((one.source_line for one in sources if one.source_line), None)
            )
            told = [self._node_end("dynamo", unit.dynamo.nodes[name]) for name in reported_dynamo_nodes(unit, node)]
            yield from (self._link(start, "node", "dynamo", end, "graph") for end in told)
            if not sources:
                yield self._link(start, "node", "dynamo", None, "none")
            if node.computes and node.name not in called:
                yield self._link(start, "node", "module", None, "none")

    def _dynamo_links(self, event: int) -> Iterator[Link]:
        unit = self._unit
        made = {name for node in unit.graph.nodes.values() for name in dynamo_nodes_of(unit, node)}
        for node in unit.dynamo.nodes.values():
            if node.target:
                start = ("dynamo", event, node.line, node.name)
                yield from self._source_link(start, node.source_line)
                if node.name not in made:
                    yield self._link(start, "node", "graph", None, "none")

    def _source_link(self, start: LinkEnd, place: SourceLine | None) -> Iterator[Link]:
        end = None if place is None else ("source", None, place.line, place.file)
        yield self._link(start, "node", "source", end, "graph")


@dataclass(frozen=True, slots=True)
class Related:
    """What belongs together: places in the user's source, names of nodes, lines of the module.

    ``lines`` are those of kernels, ``calls`` those where they are called. ``inferred`` says that a part of it was told
    from the texts and not by Inductor (see `KernelCall.how`).
    """

    places: frozenset[SourceLine] = frozenset()
    dynamo: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    lines: frozenset[int] = frozenset()
    calls: frozenset[int] = frozenset()
    inferred: bool = False

    def __bool__(self) -> bool:
        """Whether there is a mapping at all."""
        return bool(self.places or self.dynamo or self.nodes or self.lines or self.calls)


class Thread:
    """The links of one module. Made once; asking is quick."""

    def __init__(self, links: Iterable[Link]) -> None:
        self._line_of: dict[str, dict[str, int]] = {"graph": {}, "dynamo": {}}
        self._at: dict[str, dict[int, set[str]]] = {"graph": {}, "dynamo": {}, "module": {}}
        self._lines: dict[str, set[int]] = {}  # of the module, by node
        self._calls: dict[str, set[int]] = {}
        self._inferred: set[int] = set()
        self._called: set[int] = set()
        self._sources: dict[str, set[str]] = {}
        self._made: dict[str, set[str]] = {}
        self._places: dict[tuple[str, str], SourceLine] = {}
        self._from: dict[SourceLine, set[tuple[str, str]]] = {}
        for link in links:
            self._add(link)

    def _add(self, link: Link) -> None:
        if link.document in self._line_of:
            self._line_of[link.document][link.name] = link.line
            self._at[link.document].setdefault(link.line, set()).add(link.name)
        if link.to_line is None or link.to_name is None:
            return
        if link.document == "module":
            self._add_line(link, link.to_name)
        elif link.to_document == "dynamo":
            self._sources.setdefault(link.name, set()).add(link.to_name)
            self._made.setdefault(link.to_name, set()).add(link.name)
        elif link.to_document == "source":
            place = SourceLine(link.to_name, link.to_line)
            self._places[link.document, link.name] = place
            self._from.setdefault(place, set()).add((link.document, link.name))

    def _add_line(self, link: Link, node: str) -> None:
        self._at["module"].setdefault(link.line, set()).add(node)
        (self._calls if link.role == "call" else self._lines).setdefault(node, set()).add(link.line)
        if link.role == "call":
            self._called.add(link.line)
        if link.how == "dataflow":
            self._inferred.add(link.line)

    def related(self, document: str, line: int, file: str | None = None) -> Related:
        """What belongs to a line (from 1) of a document; `file` names the one of the user's that is meant."""
        if document == "source":
            return self._of_place(SourceLine(file or "", line))
        if document == "dynamo":
            names = self._at["dynamo"].get(line, set())
            return self._answer(self._made_of(names), names)
        return self._answer(self._at[document].get(line, set()))

    def lines(self, document: str, related: Related, file: str | None = None) -> tuple[int, ...]:
        """The lines (from 1) of a document that belong to something."""
        if document == "source":
            return tuple(sorted({place.line for place in related.places if place.file == file}))
        if document == "module":
            return tuple(sorted(related.lines | related.calls))
        known = self._line_of[document]
        names = related.dynamo if document == "dynamo" else related.nodes
        return tuple(sorted({known[name] for name in names if name in known}))

    def _of_place(self, place: SourceLine) -> Related:
        found = self._from.get(place, set())
        dynamo = {name for document, name in found if document == "dynamo"}
        nodes = {name for document, name in found if document == "graph"}
        return self._answer(nodes | self._made_of(dynamo), dynamo, {place} if found else set())

    def _made_of(self, dynamo: Iterable[str]) -> set[str]:
        """The nodes that were made of Dynamo's; where torch did not say, those of the same line."""
        found = {made for name in dynamo for made in self._made.get(name, ())}
        beside = (name for one in dynamo for name in self._beside("dynamo", one, "graph"))
        return found.union(name for name in beside if name not in self._sources)

    def _sources_of(self, node: str) -> set[str]:
        return self._sources.get(node) or self._beside("graph", node, "dynamo")

    def _beside(self, document: str, name: str, other: str) -> set[str]:
        """The nodes of another graph that are of the same line of the user's."""
        place = self._places.get((document, name))
        return {one for owner, one in self._from.get(place, ()) if owner == other} if place else set()

    def _answer(
        self, nodes: set[str], dynamo: set[str] | None = None, places: set[SourceLine] | None = None
    ) -> Related:
        if dynamo is None:
            dynamo = {source for name in nodes for source in self._sources_of(name)}
        if places is None:
            owners = [("graph", name) for name in nodes] or [("dynamo", name) for name in dynamo]
            places = {self._places[owner] for owner in owners if owner in self._places}
        calls = frozenset(line for name in nodes for line in self._calls.get(name, ()))
        lines = frozenset(line for name in nodes for line in self._lines.get(name, ()))
        inferred = not self._inferred.isdisjoint(calls)
        return Related(frozenset(places), frozenset(dynamo), frozenset(nodes), lines, calls, inferred)
