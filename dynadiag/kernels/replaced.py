"""Nodes that a pass put in the place of others: torch gives them no line of their own, so they get those others'."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode

__all__ = ["with_places"]


def with_places(after: PrintedGraph, before: PrintedGraph) -> PrintedGraph:
    """The graph after the passes, each computing node without a line given that of what it replaced.

    What a node replaced is gone from the graph, and was computed from what the node reads. Of several lines it is that
    of the first (a product, where a product and a sum became ``addmm``).
    """
    found = {
        name: place
        for name, node in after.nodes.items()
        if node.computes and node.place is None and (place := _place(node, after, before))
    }
    if not found:
        return after
    nodes = {name: replace(node, place=found[name]) if name in found else node for name, node in after.nodes.items()}
    return PrintedGraph(nodes, after.returns)


def _place(node: PrintedNode, after: PrintedGraph, before: PrintedGraph) -> Place | None:
    known = set(node.inputs)
    for old in before.nodes.values():
        gone = old.name not in after.nodes and bool(old.inputs)
        if gone and known.issuperset(old.inputs):
            if old.computes and old.place is not None:
                return old.place
            known.add(old.name)
    return None
