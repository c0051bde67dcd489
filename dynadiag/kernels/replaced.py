"""Nodes that torch gives no line of their own: those that a pass put in the place of others, those it traced again."""

from __future__ import annotations

from collections.abc import Container

from dynadiag.kernels.alike import places_of_alike
from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode

__all__ = ["with_places", "with_places_in_bodies"]


def with_places(after: PrintedGraph, before: PrintedGraph, told: Container[str] = ()) -> PrintedGraph:
    """The graph after the passes, each computing node without a line given that of what it replaced.

    What a node replaced is gone from the graph, and was computed from what the node reads. Of several lines it is that
    of the first (a product, where a product and a sum became ``addmm``). Where nothing is seen to be gone, since the
    pass came before, it is that of what reads the node; not of those whose origin torch `told`.
    """
    own = [name for name, node in after.nodes.items() if node.computes and node.place is None and not node.subgraph]
    found = {name: place for name in own if (place := _place(after.nodes[name], after, before))}
    for name in reversed(own):
        readers = (found.get(user) or after.nodes[user].place for user in after.users.get(name, ()))
        if (
            name not in found
            and name not in told
            and (place := next((one for one in readers if one is not None), None))
        ):
            found[name] = place
    return after.placed(found)


def with_places_in_bodies(graph: PrintedGraph, dynamo: PrintedGraph) -> PrintedGraph:
    """The graph with the lines of bodies that were traced again: a score's of ``flex_attention``, a step's of ``scan``.

    Their nodes have no line, or that of the call. They get those of the nodes that they match in the bodies which
    Dynamo's graph has for the same call; what matches none has the line of the call.
    """
    found: dict[str, Place] = {}
    for call, bodies in _bodies(graph).items():
        said = _bodies(dynamo).get(call, [])
        pairs = zip(bodies, said, strict=True) if len(bodies) == len(said) else [(one, "") for one in bodies]
        for body, own in pairs:
            nodes = [node for node in _inside(graph, [body]) if node.place in (None, call)]
            others = _inside(dynamo, [own] if own else said)
            found |= dict.fromkeys([node.name for node in nodes], call) | places_of_alike(nodes, others)
    return graph.placed(found)


def _bodies(graph: PrintedGraph) -> dict[Place, list[str]]:
    """The subgraphs that each call is given, in its order, by the line of the call."""
    found: dict[Place, list[str]] = {}
    for node in graph.nodes.values():
        given = [name for name in node.inputs if name in graph.returns]
        place = next(
            (place for name in (node.name, *graph.around(node.subgraph)) if (place := graph.nodes[name].place)), None
        )
        if given and place is not None:
            found.setdefault(place, []).extend(given)
    return found


def _inside(graph: PrintedGraph, subgraphs: list[str]) -> list[PrintedNode]:
    return [node for node in graph.nodes.values() if node.subgraph in subgraphs and node.computes]


def _place(node: PrintedNode, after: PrintedGraph, before: PrintedGraph) -> Place | None:
    known = set(node.inputs)
    for old in before.nodes.values():
        gone = old.name not in after.nodes and bool(old.inputs)
        if gone and known.issuperset(old.inputs):
            if old.computes and old.place is not None:
                return old.place
            known.add(old.name)
    return None
