"""The source lines of this run for a graph from the FX graph cache.

Such a graph was printed with the lines of the program that filled the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.kernels.graph_parser import PrintedGraph, parse_graph
from dynadiag.kernels.source_lines import Surroundings, locate_cache_hit
from tui.line_links import LineKey

__all__ = ["cache_hit_lines"]

_TANGENT_PREFIX = "tangents_"  # the prefix of inputs that only backward and joint graphs have


def cache_hit_lines(
    title: str, graph: Sequence[str], dynamo: Sequence[str], forward: Sequence[str] | None
) -> dict[str, LineKey] | None:
    """Return the source line of each node, or ``None`` if the graph already has the lines of this run.

    `forward` is the forward graph: a node of a backward graph has the line of its forward node.
    """
    found = _parsed(graph)
    backward = not title.startswith("joint") and any(name.startswith(_TANGENT_PREFIX) for name in found.nodes)
    before = _parsed(forward) if backward and forward is not None else None
    mended = locate_cache_hit(found, Surroundings(dynamo=_parsed(dynamo), forward=before, from_cache=True))
    if mended is found:
        return None
    return {
        name: (node.source_line.file, node.source_line.line)
        for name, node in mended.nodes.items()
        if node.source_line is not None
    }


def _parsed(lines: Sequence[str]) -> PrintedGraph:
    return parse_graph("\n".join(lines))
