"""Whose lines a graph bears that came out of torch's cache: those of the program that put it there.

Two programs with the same computation share an entry of the cache, and its graph names the lines of the first.
Dynamo's graph is of this run; nodes of both are matched by their operators, in order. What has no match takes the line
of matched nodes that the first program had on the same line as it; where there are none, it has no line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from dynadiag.kernels.alike import places_of_alike
from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode

__all__ = ["with_own_places"]


def with_own_places(graph: PrintedGraph, dynamo: PrintedGraph, forward: PrintedGraph | None = None) -> PrintedGraph:
    """The graph with this run's lines, where its own are not in Dynamo's graph.

    ``forward`` is the forward graph where ``graph`` is a backward one: its nodes have the lines of those.
    """
    own = {node.place for node in dynamo.nodes.values() if node.place is not None}
    if not own or all(node.place in own for node in graph.nodes.values() if node.place is not None):
        return graph
    matched = places_of_alike(_computing(forward or graph), _computing(dynamo))
    votes: defaultdict[Place, Counter[Place]] = defaultdict(Counter)
    for name, place in matched.items():
        if (theirs := (forward or graph).nodes[name].place) is not None:
            votes[theirs][place] += 1
    nodes: dict[str, PrintedNode] = {}
    for name, node in graph.nodes.items():
        exact = None if forward else matched.get(name)
        nodes[name] = replace(node, place=exact or _likeliest(node, votes, own))
    return replace(graph, nodes=nodes)


def _computing(graph: PrintedGraph) -> list[PrintedNode]:
    return [node for node in graph.nodes.values() if node.computes]


def _likeliest(node: PrintedNode, votes: dict[Place, Counter[Place]], own: set[Place]) -> Place | None:
    if node.place is None:
        return None
    found = votes.get(node.place)
    return found.most_common(1)[0][0] if found else node.place if node.place in own else None
