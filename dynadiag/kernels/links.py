"""Links between the lines of a unit's documents, many to many, both ways.

Four documents belong to a unit: the user's ``source``, ``dynamo``'s graph, the ``graph`` that was lowered, and the
generated ``module`` with its kernels. Whatever line is asked for, the answer is the same kind of thing: the
lines of the user's, the nodes of both graphs and the calls of kernels that belong to it. No answer means that there is
no mapping.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.kernels.printed import Place, PrintedGraph
from dynadiag.kernels.survey import KernelCall, Unit, sources_of

__all__ = ["DOCUMENTS", "Related", "Thread"]

DOCUMENTS = ("source", "dynamo", "graph", "module")


@dataclass(frozen=True, slots=True)
class Related:
    """What belongs together. ``calls`` are indices of `KernelCall` in the unit's own tuple.

    ``inferred`` says that a part of it was told from the texts and not by Inductor (see `KernelCall.how`).
    """

    places: frozenset[Place] = frozenset()
    dynamo: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    calls: frozenset[int] = frozenset()
    inferred: bool = False

    def __bool__(self) -> bool:
        """Whether there is a mapping at all."""
        return bool(self.places or self.dynamo or self.nodes or self.calls)


class Thread:
    """The links of one unit. Made once; asking is quick."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._sources = {node.name: sources_of(unit, node) for node in unit.graph.nodes.values() if node.target}
        self._at_place: dict[Place, set[str]] = {}
        self._of_dynamo: dict[str, set[str]] = {}
        self._of_node: dict[str, set[int]] = {}
        self._module: dict[int, set[int]] = {}
        for node in unit.graph.nodes.values():
            for place in self._places([node.name]):
                self._at_place.setdefault(place, set()).add(node.name)
            for name in self._sources.get(node.name, ()):
                self._of_dynamo.setdefault(name, set()).add(node.name)
        for index, call in enumerate(unit.calls):
            for name in call.nodes + call.views:
                self._of_node.setdefault(name, set()).add(index)
            for line in lines_of_call(call):
                self._module.setdefault(line, set()).add(index)

    def related(self, document: str, line: int, file: str | None = None) -> Related:
        """What belongs to a line (from 1) of a document; `file` names the one of the user's that is meant."""
        unit = self.unit
        if document == "source":
            return self._of_place(Place(file or "", line))
        if document == "module":
            return self._of_calls(self._module.get(line, set()))
        if document == "dynamo":
            return self._of_dynamo_nodes(_nodes_at(unit.dynamo, line))
        return self._of_nodes(_nodes_at(unit.graph, line))

    def lines(self, document: str, related: Related, file: str | None = None) -> tuple[int, ...]:
        """The lines (from 1) of a document that belong to something."""
        if document == "source":
            return _sorted(place.line for place in related.places if place.file == file)
        if document == "module":
            return _sorted(line for index in related.calls for line in lines_of_call(self.unit.calls[index]))
        graph, names = self._names(document, related)
        return _sorted(graph.nodes[name].line for name in names if name in graph.nodes)

    def _names(self, document: str, related: Related) -> tuple[PrintedGraph, frozenset[str]]:
        if document == "dynamo":
            return self.unit.dynamo, related.dynamo
        return self.unit.graph, related.nodes

    def _of_place(self, place: Place) -> Related:
        nodes = self._at_place.get(place, set())
        dynamo = {node.name for node in self.unit.dynamo.nodes.values() if node.place == place and node.target}
        made = nodes | {name for one in dynamo for name in self._of_dynamo.get(one, ())}
        calls = {index for name in made for index in self._of_node.get(name, ())}
        return self._answer({place} if dynamo or nodes else set(), dynamo, made, calls)

    def _of_dynamo_nodes(self, names: set[str]) -> Related:
        nodes = {made for name in names for made in self._of_dynamo.get(name, ())}
        places = {place for name in names if (place := self.unit.dynamo.nodes[name].place)}
        return self._answer(places, names, nodes, {index for name in nodes for index in self._of_node.get(name, ())})

    def _of_nodes(self, names: set[str]) -> Related:
        dynamo = {source for name in names for source in self._sources.get(name, ())}
        calls = {index for name in names for index in self._of_node.get(name, ())}
        return self._answer(self._places(names), dynamo, names, calls)

    def _of_calls(self, calls: set[int]) -> Related:
        chosen = [self.unit.calls[index] for index in calls]
        nodes = {name for call in chosen for name in call.nodes + call.views}
        places = {place for call in chosen for place in call.places or call.view_places}
        return self._answer(places, {name for call in chosen for name in call.dynamo}, nodes, calls)

    def _answer(self, places: set[Place], dynamo: set[str], nodes: set[str], calls: set[int]) -> Related:
        inferred = any(self.unit.calls[index].how == "dataflow" for index in calls)
        return Related(frozenset(places), frozenset(dynamo), frozenset(nodes), frozenset(calls), inferred)

    def _places(self, names: Iterable[str]) -> set[Place]:
        found: set[Place] = set()
        for name in names:
            node = self.unit.graph.nodes[name]
            made = [self.unit.dynamo.nodes[one].place for one in self._sources.get(name, ())]
            found.update(place for place in ([node.place] if node.place else made) if place is not None)
        return found


def lines_of_call(call: KernelCall) -> tuple[int, ...]:
    """The lines of the generated module that are a call's: its own, and those of the kernel that it calls."""
    definition = call.definition
    if definition is None:
        return (call.line,)
    return (definition.line, *range(definition.first, definition.last + 1), call.line)


def _nodes_at(graph: PrintedGraph, line: int) -> set[str]:
    return {name for name, node in graph.nodes.items() if node.line == line and node.name == name and node.target}


def _sorted(lines: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(lines)))
