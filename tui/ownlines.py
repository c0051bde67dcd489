"""The source lines of this run for a graph from the FX graph cache.

Such a graph was printed with the lines of the program that filled the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.kernels.cached import with_own_places
from dynadiag.kernels.printed import PrintedGraph, parse_graph
from tui.links import Place

__all__ = ["own_lines"]

_TANGENT = "tangents_"  # the prefix of inputs that only backward and joint graphs have


def own_lines(
    title: str, graph: Sequence[str], dynamo: Sequence[str], forward: Sequence[str] | None
) -> dict[str, Place] | None:
    """Return the source line of each node, or ``None`` if the graph already has the lines of this run.

    `forward` is the forward graph: a node of a backward graph has the line of its forward node.
    """
    found = _parsed(graph)
    backward = not title.startswith("joint") and any(name.startswith(_TANGENT) for name in found.nodes)
    mended = with_own_places(found, _parsed(dynamo), _parsed(forward) if backward and forward is not None else None)
    if mended is found:
        return None
    return {name: (node.place.file, node.place.line) for name, node in mended.nodes.items() if node.place is not None}


def _parsed(lines: Sequence[str]) -> PrintedGraph:
    return parse_graph("\n".join(lines))
