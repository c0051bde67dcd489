"""Find source lines for nodes that torch gives none: nodes that a pass inserted, and nodes that were traced again."""

from __future__ import annotations

from collections.abc import Container

from dynadiag.kernels.alike import places_of_alike
from dynadiag.kernels.printed import Place, PrintedGraph, PrintedNode

__all__ = ["with_places", "with_places_in_bodies"]


def with_places(after: PrintedGraph, before: PrintedGraph, told: Container[str] = ()) -> PrintedGraph:
    """Return the graph with source lines for computing nodes that have none after the passes.

    They get the line of the node that they replaced. A replaced node is not in the graph any more, and its inputs are
    among the inputs of the new node. If there are several, the line of the first is taken (the product's, when a
    product and a sum became ``addmm``). If no replaced node is visible, because the pass ran earlier, the line of a
    user of the node is taken, unless torch reported the origin of the node.
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
    """Return the graph with source lines for bodies that were traced again.

    Those are a score function of ``flex_attention`` or a step of ``scan``. Their nodes have no line, or the line of the
    call. They get the lines of the nodes that they match in the bodies of the same call in Dynamo's graph. A node
    without a match gets the line of the call.
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
    """The subgraphs that each call takes, in order, by the source line of the call."""
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
