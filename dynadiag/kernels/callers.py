"""The user's lines of what torch's own functions made: ``flex_attention``, ``vmap``, an optimizer's step.

A printed graph names the innermost line of each node, which is then one of torch's. Dynamo's graph as the recorder kept
it has the whole stack, and so the line that called torch; the nodes of later graphs are told from which of Dynamo's
they came. A log that the recorder did not write has no such data, and its nodes keep the line that they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode
from dynadiag.recording.digest.context import is_torch
from dynadiag.recording.records import Node

__all__ = ["callers", "with_callers"]


def callers(dynamo: PrintedGraph, nodes: Iterable[Node]) -> dict[str, Place]:
    """The user's line that called torch, for each of Dynamo's nodes that names a line of torch's; or all name none."""
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
    """A graph whose nodes on lines of torch's have those that called torch instead.

    ``known`` is what `callers` found, ``sources`` are the names of Dynamo's nodes for each node. Where those are not
    told, all nodes that Dynamo has for the line must have been called from one, or all nodes that it has. A branch or a
    body that is torch's own (the mask of a ``flex_attention`` without one) has the line of what it is a part of.
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
