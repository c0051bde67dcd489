"""Find the user's line behind code of torch's own: ``flex_attention``, ``vmap``, an optimizer's step.

A printed graph names the innermost line of each node, which is a line of torch here. The recorder keeps Dynamo's graph
with whole stacks, which have the line that called torch. Later graphs say which Dynamo nodes their nodes came from. A
log without the recorder's events has no stacks: its nodes keep the lines that they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, SourceLine
from dynadiag.recording.digest.context import is_torch_or_stdlib
from dynadiag.recording.records import Node

__all__ = ["find_torch_callers", "locate_torch_frames"]


def find_torch_callers(dynamo: PrintedGraph, nodes: Iterable[Node]) -> dict[str, SourceLine]:
    """Map Dynamo's nodes whose line is in torch to the user's line that called torch.

    When no node of the graph has a line, all nodes are mapped.
    """
    spans = {node.name: node.span for node in nodes}
    placed = any(node.source_line for node in dynamo.nodes.values())
    found: dict[str, SourceLine] = {}
    for name, node in dynamo.nodes.items():
        span = spans.get(name)
        if (
            (_is_in_torch(node) or not placed)
            and span
            and span.file
            and span.line
            and not is_torch_or_stdlib(span.file)
        ):
            found[name] = SourceLine(span.file, span.line)
    return found


def locate_torch_frames(
    graph: PrintedGraph,
    dynamo: PrintedGraph,
    torch_callers: Mapping[str, SourceLine],
    sources: Mapping[str, Sequence[str]],
) -> PrintedGraph:
    """Return the graph with the user's line in place of each line of torch.

    `torch_callers` is the result of `find_torch_callers`, `sources` maps a node to Dynamo's nodes. Without an entry
    there, the user's line is taken only when it is unambiguous: all Dynamo nodes of the same torch line, or else all
    that are known, have the same caller. A branch or body that is torch's own (such as the default mask of
    ``flex_attention``) gets the line of the node that contains it.
    """
    calls: dict[SourceLine | None, set[SourceLine]] = {}
    for name, place in torch_callers.items():
        calls.setdefault(dynamo.nodes[name].source_line, set()).add(place)
    every = set(torch_callers.values())

    def called(node: PrintedNode) -> SourceLine | None:
        told = [torch_callers[name] for name in sources.get(node.name, ()) if name in torch_callers]
        here = calls.get(node.source_line, every)
        return told[0] if told else min(here) if len(here) == 1 else node.source_line

    of_torch = [node for node in graph.nodes.values() if node.source_line in calls or _is_in_torch(node)]
    moved = {node.name: called(node) for node in of_torch}
    placed = graph.with_source_lines(
        {name: place for name, place in moved.items() if place != graph.nodes[name].source_line}
    )
    inner = [node for node in placed.nodes.values() if node.subgraph and _is_in_torch(node)]
    return placed.with_source_lines({node.name: _enclosing_line(node, placed) for node in inner})


def _is_in_torch(node: PrintedNode) -> bool:
    return node.source_line is not None and is_torch_or_stdlib(node.source_line.file)


def _enclosing_line(node: PrintedNode, graph: PrintedGraph) -> SourceLine | None:
    places = (graph.nodes[name].source_line for name in graph.enclosing_nodes(node.subgraph))
    return next((place for place in places if place is not None), node.source_line)
