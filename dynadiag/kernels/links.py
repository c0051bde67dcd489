"""The rows of the recording's link table: which lines of a generated module's documents belong together.

There are four documents: the user's "source", "dynamo" (Dynamo's graph), "graph" (the graph that was lowered) and
"module" (the generated module with its kernels). A row links a line of one document with a line of another, and is read
in both directions. A row without a target line says that no mapping is known. When torch does not say which Dynamo
nodes a node came from (a log without our recorder), there is no row between them: they share a source line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from dynadiag.kernels.generated_module import GeneratedModule, KernelCall, dynamo_nodes_of, reported_dynamo_nodes
from dynadiag.kernels.graph_parser import PrintedNode, SourceLine
from dynadiag.recording.records import Link

__all__ = ["LinkIndex", "module_links"]

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


class LinkIndex:
    """The links of one generated module, read from the recording's link table. They can be followed in both directions.

    All lines are 1-based. A line without a mapping gives an empty answer.
    """

    def __init__(self, links: Iterable[Link]) -> None:
        self.inferred: set[int] = set()  # lines of calls whose nodes were inferred from the texts
        self.graph_event: int | None = None  # the event of the lowered graph
        self._names: defaultdict[tuple[str, int], set[str]] = defaultdict(set)  # (document, line) -> nodes
        self._module_lines: defaultdict[str, set[int]] = defaultdict(set)  # by lowered node
        self._made_from: defaultdict[str, set[str]] = defaultdict(set)  # Dynamo's node -> lowered, as torch reported
        self._reported: set[str] = set()  # lowered nodes with such a Dynamo node
        self._line_of: dict[tuple[str, str], SourceLine] = {}  # (document, node) -> the user's line
        self._nodes_of: defaultdict[SourceLine, set[tuple[str, str]]] = defaultdict(set)
        for link in links:
            self._add(link)

    def _add(self, link: Link) -> None:
        if link.document != "module":
            self._names[link.document, link.line].add(link.name)
        if link.to_line is None or link.to_name is None:
            return
        if link.document == "module":
            self.graph_event = link.to_event
            self._names["module", link.line].add(link.to_name)
            self._module_lines[link.to_name].add(link.line)
            if link.how == "dataflow":
                self.inferred.add(link.line)
        elif link.to_document == "dynamo":
            self._made_from[link.to_name].add(link.name)
            self._reported.add(link.name)
        elif link.to_document == "source":
            self._line_of[link.document, link.name] = line = SourceLine(link.to_name, link.to_line)
            self._nodes_of[line].add((link.document, link.name))

    def document_lines(self, document: str) -> dict[int, frozenset[SourceLine]]:
        """Return the user's lines of every line of a document: "module", "graph" or "dynamo"."""
        lines = (line for one, line in self._names if one == document)
        return {line: found for line in lines if (found := self.source_lines(document, line))}

    def source_lines(self, document: str, line: int) -> frozenset[SourceLine]:
        """Return the user's lines that a line of a document came from."""
        names = self._names.get((document, line), set())
        lowered = {("dynamo" if document == "dynamo" else "graph", name) for name in names}
        return frozenset(self._line_of[owner] for owner in lowered if owner in self._line_of)

    def nodes(self, document: str, line: int, file: str = "") -> frozenset[str]:
        """Return the lowered nodes of a line of a document; `file` names the user's file for "source"."""
        if document != "source":
            names = self._names.get((document, line), set())
            return frozenset(self._lowered_from(names) if document == "dynamo" else names)
        found = self._nodes_of.get(SourceLine(file, line), set())
        lowered = {name for owner, name in found if owner == "graph"}
        return frozenset(lowered | self._lowered_from({name for owner, name in found if owner == "dynamo"}))

    def module_lines(self, document: str, line: int, file: str = "") -> frozenset[int]:
        """Return the lines of the module, of kernels and calls, that a line of a document became."""
        return frozenset(one for name in self.nodes(document, line, file) for one in self._module_lines.get(name, ()))

    def _lowered_from(self, dynamo: set[str]) -> set[str]:
        """The lowered nodes made from Dynamo's. If torch reported none, those of the same source line."""
        lines = {self._line_of[owner] for name in dynamo if (owner := ("dynamo", name)) in self._line_of}
        same_line = {name for line in lines for owner, name in self._nodes_of[line] if owner == "graph"}
        return {made for name in dynamo for made in self._made_from.get(name, ())} | (same_line - self._reported)
