"""Whose lines a graph bears that came out of torch's cache: those of the program that put it there.

Two programs with the same computation share an entry of the cache, and its graph names the lines of the first.
Dynamo's graph is of this run; nodes of both are matched by their operators, in order. What has no match takes the line
of matched nodes that the first program had on the same line as it; where there are none, it has no line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from difflib import SequenceMatcher

from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode

__all__ = ["with_own_places"]

# What Dynamo's graph calls otherwise than ATen's.
_PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "mv", "dot"})
_SAME = {"truediv": "div", "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "conv2d": "convolution"}
_MOST = 5000  # nodes: beyond, matching takes longer than a person waits


def with_own_places(graph: PrintedGraph, dynamo: PrintedGraph, forward: PrintedGraph | None = None) -> PrintedGraph:
    """The graph with this run's lines, where its own are not in Dynamo's graph.

    ``forward`` is the forward graph where ``graph`` is a backward one: its nodes have the lines of those.
    """
    own = {node.place for node in dynamo.nodes.values() if node.place is not None}
    if not own or all(node.place in own for node in graph.nodes.values() if node.place is not None):
        return graph
    matched = _matched(forward or graph, dynamo)
    votes: defaultdict[Place, Counter[Place]] = defaultdict(Counter)
    for name, place in matched.items():
        if (theirs := (forward or graph).nodes[name].place) is not None:
            votes[theirs][place] += 1
    nodes: dict[str, PrintedNode] = {}
    for name, node in graph.nodes.items():
        exact = None if forward else matched.get(name)
        nodes[name] = replace(node, place=exact or _likeliest(node, votes, own))
    return PrintedGraph(nodes, graph.returns)


def _matched(graph: PrintedGraph, dynamo: PrintedGraph) -> dict[str, Place]:
    """The line of the Dynamo node that each node matches by its operator and its place in the order."""
    ours, theirs = _computing(dynamo), _computing(graph)
    if len(theirs) > _MOST:
        return {}
    matcher = SequenceMatcher(None, [_kind(node) for node in theirs], [_kind(node) for node in ours], autojunk=False)
    found: dict[str, Place] = {}
    for start, other, size in matcher.get_matching_blocks():
        for node, mine in zip(theirs[start : start + size], ours[other : other + size], strict=True):
            if mine.place is not None:
                found[node.name] = mine.place
    return found


def _kind(node: PrintedNode) -> str:
    """What an operator is called in both graphs."""
    name = node.operator.strip("_")
    return "product" if name in _PRODUCTS else _SAME.get(name, name)


def _computing(graph: PrintedGraph) -> list[PrintedNode]:
    return [node for node in graph.nodes.values() if node.computes]


def _likeliest(node: PrintedNode, votes: dict[Place, Counter[Place]], own: set[Place]) -> Place | None:
    if node.place is None:
        return None
    found = votes.get(node.place)
    return found.most_common(1)[0][0] if found else node.place if node.place in own else None
