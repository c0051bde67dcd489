"""The lines of one generated module and of its graphs that belong together, followed in both directions."""

from __future__ import annotations

from collections import defaultdict

from dynadiag.kernels.generated_module import GeneratedModule, dynamo_nodes_of, reported_dynamo_nodes
from dynadiag.kernels.graph_parser import SourceLine


class LinkIndex:
    """The links of one generated module. All lines are 1-based. A line without a mapping gives an empty answer.

    Documents are "module" (the generated code), "graph" (the lowered graph), "dynamo" and "source" (the user's files).
    """

    def __init__(self, unit: GeneratedModule) -> None:
        self._names: defaultdict[tuple[str, int], set[str]] = defaultdict(set)  # (document, line) -> nodes
        self._module_lines: defaultdict[str, set[int]] = defaultdict(set)  # by lowered node
        self._made_from: defaultdict[str, set[str]] = defaultdict(set)  # Dynamo's node -> lowered, as torch reported
        self._reported: set[str] = set()  # lowered nodes with such a Dynamo node
        self._line_of: dict[tuple[str, str], SourceLine] = {}  # (document, node) -> the user's line
        self._nodes_of: defaultdict[SourceLine, set[tuple[str, str]]] = defaultdict(set)
        for call in unit.calls:
            self._add_module_line(call.line, call.nodes + call.enclosing_nodes)
            for statement in call.statements:
                self._add_module_line(statement.line, statement.nodes)
        for node in unit.graph.nodes.values():
            sources = (unit.dynamo.nodes[name].source_line for name in dynamo_nodes_of(unit, node))
            place = node.source_line or next((line for line in sources if line), None)
            if node.target:
                self._add_node("graph", node.name, node.line, place)
            for name in reported_dynamo_nodes(unit, node) if node.target else ():
                self._made_from[name].add(node.name)
                self._reported.add(node.name)
        for node in unit.dynamo.nodes.values():
            if node.target:
                self._add_node("dynamo", node.name, node.line, node.source_line)

    def _add_module_line(self, line: int, nodes: tuple[str, ...]) -> None:
        self._names["module", line].update(nodes)
        for name in nodes:
            self._module_lines[name].add(line)

    def _add_node(self, document: str, name: str, line: int, place: SourceLine | None) -> None:
        self._names[document, line].add(name)
        if place is not None:
            self._line_of[document, name] = place
            self._nodes_of[place].add((document, name))

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
