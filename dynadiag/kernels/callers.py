"""Find the user's line behind code of torch's own: ``flex_attention``, ``vmap``, an optimizer's step.

A printed graph names the innermost line of each node, which is a line of torch here. The recorder keeps Dynamo's graph
with whole stacks, which have the line that called torch. Later graphs say which Dynamo nodes their nodes came from. A
log without the recorder's events has no stacks: its nodes keep the lines that they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode
from dynadiag.recording.digest.context import is_torch
from dynadiag.recording.records import Node

__all__ = ["callers", "with_callers"]


def callers(dynamo: PrintedGraph, nodes: Iterable[Node]) -> dict[str, Place]:
    """Map Dynamo's nodes whose line is in torch to the user's line that called torch.

    When no node of the graph has a line, all nodes are mapped.
    """
    spans = {node.name: node.span for node in nodes}
    placed = any(node.place for node in dynamo.nodes.values())
    found: dict[str, Place] = {}
    for name, node in dynamo.nodes.items():
        span = spans.get(name)
        if (_is_torchs(node) or not placed) and span and span.file and span.line and not is_torch(span.file):
            found[name] = Place(span.file, span.line)
    return found


def with_callers(
    graph: PrintedGraph, dynamo: PrintedGraph, known: Mapping[str, Place], sources: Mapping[str, Sequence[str]]
) -> PrintedGraph:
    """Return the graph with the user's line in place of each line of torch.

    `known` is the result of `find_torch_callers`, `sources` maps a node to Dynamo's nodes. Without an entry there, the
    user's line is taken only when it is unambiguous: all Dynamo nodes of the same torch line, or else all that are
    known, have the same caller. A branch or body that is torch's own (such as the default mask of ``flex_attention``)
    gets the line of the node that contains it.
    """
    calls: dict[Place | None, set[Place]] = {}
    for name, place in known.items():
        calls.setdefault(dynamo.nodes[name].place, set()).add(place)
    every = set(known.values())

    def called(node: PrintedNode) -> Place | None:
        told = [known[name] for name in sources.get(node.name, ()) if name in known]
        here = calls.get(node.place, every)
        return told[0] if told else min(here) if len(here) == 1 else node.place

    of_torch = [node for node in graph.nodes.values() if node.place in calls or _is_torchs(node)]
    moved = {node.name: called(node) for node in of_torch}
    placed = graph.placed({name: place for name, place in moved.items() if place != graph.nodes[name].place})
    inner = [node for node in placed.nodes.values() if node.subgraph and _is_torchs(node)]
    return placed.placed({node.name: _around(node, placed) for node in inner})


def _is_torchs(node: PrintedNode) -> bool:
    return node.place is not None and is_torch(node.place.file)


def _around(node: PrintedNode, graph: PrintedGraph) -> Place | None:
    places = (graph.nodes[name].place for name in graph.around(node.subgraph))
    return next((place for place in places if place is not None), node.place)
