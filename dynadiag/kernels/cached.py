"""Replace the source lines of a graph that came out of torch's cache.

Two programs with the same computation share a cache entry, and the cached graph names the lines of the program that
wrote it. Dynamo's graph is from this run. Nodes of the two graphs are matched by their operators, in order. A node
without a match takes the line that most matched nodes from the same foreign line got. If there are none, it gets no
line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from dynadiag.kernels.alike import places_of_alike
from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode

__all__ = ["with_own_places"]


def with_own_places(graph: PrintedGraph, dynamo: PrintedGraph, forward: PrintedGraph | None = None) -> PrintedGraph:
    """Return the graph with this run's lines. A graph whose lines are all in Dynamo's graph is returned as it is.

    For a backward graph, `forward` is its forward graph: backward nodes carry the lines of forward nodes.
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
