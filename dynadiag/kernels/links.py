"""The rows of the recording's link table: which lines of a generated module's documents belong together.

There are four documents: the user's "source", "dynamo" (Dynamo's graph), "graph" (the graph that was lowered) and
"module" (the generated module with its kernels). A row links a line of one document with a line of another, and is read
in both directions. A row without a target line says that no mapping is known. When torch does not say which Dynamo
nodes a node came from (a log without our recorder), there is no row between them: they share a source line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynadiag.kernels.generated_module import GeneratedModule, KernelCall, dynamo_nodes_of, reported_dynamo_nodes
from dynadiag.kernels.graph_parser import PrintedNode, SourceLine
from dynadiag.recording.records import Link

__all__ = ["module_links"]

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
