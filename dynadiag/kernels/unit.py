"""A generated module with the graph that it was made of, and its kernels' calls: what is known of each.

The operators of a call lead to the user's lines by way of its nodes in the lowered graph and in Dynamo's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dynadiag.kernels.align import Line
from dynadiag.kernels.built import Built
from dynadiag.kernels.cost import Cost
from dynadiag.kernels.module import Definition, Module
from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode

__all__ = ["KernelCall", "Unit", "places_of", "places_of_nodes", "sources_of", "told_sources"]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a kernel, generated or a library's: a row of the listing.

    ``nodes`` are those of the lowered graph that it computes, ``views`` those that only say how it looks at its
    inputs. ``how`` says where that is from: "scheduler" (the recorder asked Inductor), "comment" (the generated code
    says so), "dataflow" (inferred from the texts: right as a rule), "around" (nothing is known but the branch or the
    loop that it is in) or "none" (no mapping). ``places`` are the user's lines that are computed, ``view_places`` those
    of views. ``around`` are the nodes (``cond``, ``while_loop``) whose branch or loop it is in, the innermost first.
    """

    index: int  # in its recording
    compile_id: str
    stage: str | None  # "forward", "backward" or "inference"
    event: int  # the event with the generated module
    name: str
    language: str  # "cpp", "triton", "extern", or another backend's name
    number: int  # of the calls of this kernel in its module, from 1
    line: int  # of the call in the module, from 1
    text: str
    definition: Definition | None
    nodes: tuple[str, ...]
    views: tuple[str, ...]
    ops: tuple[str, ...]  # the nodes' operators, each once
    parts: tuple[tuple[str, str], ...]  # the same with the text of the line that each is from
    dynamo: tuple[str, ...]
    places: tuple[Place, ...]
    view_places: tuple[Place, ...]
    how: str
    grid: str | None
    cost: Cost
    device: str | None
    cache: str | None  # "hit", "miss" or "bypass" of the FX graph cache
    partition: str | None
    fallback: str | None  # why this is a library's call by way of a fallback, where it is one
    lines: tuple[Line, ...] = ()  # what each statement of a generated kernel is part of, by its line in the module
    around: tuple[str, ...] = ()
    built: Built | None = None  # what the run made of it, where the recording has that


@dataclass(frozen=True)
class Unit:
    """A generated module, the graph it was made of, Dynamo's graph, and its calls."""

    event: int
    compile_id: str
    module: Module
    graph: PrintedGraph
    graph_event: int | None
    dynamo: PrintedGraph
    dynamo_event: int | None
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calls: tuple[KernelCall, ...] = ()

    @cached_property
    def code(self) -> Mapping[Place, str]:
        """The text of the user's lines."""
        nodes = [*self.dynamo.nodes.values(), *self.graph.nodes.values()]
        return {node.place: node.code for node in nodes if node.place is not None and node.code}

    @cached_property
    def dynamo_at(self) -> Mapping[Place, tuple[str, ...]]:
        """Dynamo's nodes of each line."""
        found: dict[Place, list[str]] = {}
        for node in self.dynamo.nodes.values():
            if node.place is not None and node.target:
                found.setdefault(node.place, []).append(node.name)
        return {place: tuple(names) for place, names in found.items()}

    @cached_property
    def dynamo_printed(self) -> Mapping[str, tuple[str, ...]]:
        """Dynamo's nodes of each name: a subgraph's have it in a graph of their own."""
        found: dict[str, list[str]] = {}
        for name, node in self.dynamo.nodes.items():
            found.setdefault(node.printed, []).append(name)
        return {printed: tuple(names) for printed, names in found.items()}


def sources_of(unit: Unit, node: PrintedNode) -> tuple[str, ...]:
    """Dynamo's nodes that a node was made from: as recorded, or those of the same user line."""
    return told_sources(unit, node) or (unit.dynamo_at.get(node.place, ()) if node.place else ())


def told_sources(unit: Unit, node: PrintedNode) -> tuple[str, ...]:
    """Those that torch said. It says names that several graphs may have: then those on the node's line are meant.

    In a branch that was traced again for its backward they are names of the branch's own, and none of Dynamo's.
    """
    said = tuple(one for name in unit.sources.get(node.name, ()) for one in unit.dynamo_printed.get(name, ()))
    here = tuple(name for name in said if unit.dynamo.nodes[name].place == node.place)
    return here if node.subgraph else here or said


def places_of(unit: Unit, names: Iterable[str]) -> tuple[Place, ...]:
    """The user's lines of some nodes of the lowered graph; of what reads them, where they have none of their own."""
    nodes = [unit.graph.nodes[name] for name in names if name in unit.graph.nodes]
    return places_of_nodes(unit, nodes) or places_of_nodes(unit, _users(unit, nodes))


def places_of_nodes(unit: Unit, nodes: Iterable[PrintedNode]) -> tuple[Place, ...]:
    """The user's lines of just these nodes, each once."""
    found: dict[Place, None] = {}
    for node in nodes:
        for place in (node.place, *(unit.dynamo.nodes[name].place for name in sources_of(unit, node))):
            if place is not None:
                found[place] = None
                break
    return tuple(found)


def _users(unit: Unit, nodes: list[PrintedNode]) -> list[PrintedNode]:
    """The nodes that read these: what a node without a line of its own (a seed, say) was made for."""
    return [unit.graph.nodes[user] for node in nodes for user in unit.graph.users.get(node.name, ())]
