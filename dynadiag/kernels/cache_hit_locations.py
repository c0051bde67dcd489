"""Replace the source lines of a graph that came out of torch's cache.

Two programs with the same computation share a cache entry, and the cached graph names the lines of the program that
wrote it. Dynamo's graph is from this run. Nodes of the two graphs are matched by their operators, in order. A node
without a match takes the line that most matched nodes from the same foreign line got. If there are none, it gets no
line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, SourceLine
from dynadiag.kernels.node_matching import match_source_lines

__all__ = ["locate_cache_hit"]


def locate_cache_hit(
    graph: PrintedGraph, dynamo_graph: PrintedGraph, forward: PrintedGraph | None = None
) -> PrintedGraph:
    """Return the graph with this run's lines. A graph whose lines are all in Dynamo's graph is returned as it is.

    For a backward graph, `forward` is its forward graph: backward nodes carry the lines of forward nodes.
    """
    own = {node.source_line for node in dynamo_graph.nodes.values() if node.source_line is not None}
    if not own or all(node.source_line in own for node in graph.nodes.values() if node.source_line is not None):
        return graph
    matched = match_source_lines(_computing_nodes(forward or graph), _computing_nodes(dynamo_graph))
    votes: defaultdict[SourceLine, Counter[SourceLine]] = defaultdict(Counter)
    for name, place in matched.items():
        if (theirs := (forward or graph).nodes[name].source_line) is not None:
            votes[theirs][place] += 1
    nodes: dict[str, PrintedNode] = {}
    for name, node in graph.nodes.items():
        exact = None if forward else matched.get(name)
        nodes[name] = replace(node, source_line=exact or _most_voted_line(node, votes, own))
    return replace(graph, nodes=nodes)


def _computing_nodes(graph: PrintedGraph) -> list[PrintedNode]:
    return [node for node in graph.nodes.values() if node.computes]


def _most_voted_line(
    node: PrintedNode, votes: dict[SourceLine, Counter[SourceLine]], own: set[SourceLine]
) -> SourceLine | None:
    if node.source_line is None:
        return None
    found = votes.get(node.source_line)
    return found.most_common(1)[0][0] if found else node.source_line if node.source_line in own else None
