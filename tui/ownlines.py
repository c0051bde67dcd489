"""The lines of this run in a graph that came out of torch's cache: those that are printed are another program's."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.kernels.cached import with_own_places
from dynadiag.kernels.printed import PrintedGraph, parse_graph
from tui.links import Place

__all__ = ["own_lines"]

_TANGENT = "tangents_"  # how the inputs are named that only a backward graph has, and the joint one


def own_lines(
    title: str, graph: Sequence[str], dynamo: Sequence[str], forward: Sequence[str] | None
) -> dict[str, Place] | None:
    """The places of a graph's nodes by name; ``None`` where the graph's own comments are of this run.

    `forward` is the forward graph: the nodes of a backward one have the lines of its nodes.
    """
    found = _parsed(graph)
    backward = not title.startswith("joint") and any(name.startswith(_TANGENT) for name in found.nodes)
    mended = with_own_places(found, _parsed(dynamo), _parsed(forward) if backward and forward is not None else None)
    if mended is found:
        return None
    return {name: (node.place.file, node.place.line) for name, node in mended.nodes.items() if node.place is not None}


def _parsed(lines: Sequence[str]) -> PrintedGraph:
    return parse_graph("\n".join(lines))
