"""Find source lines for nodes that torch gives none: nodes that a pass inserted, and nodes that were traced again."""

from __future__ import annotations

from collections.abc import Container

from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, SourceLine
from dynadiag.kernels.node_matching import match_source_lines

__all__ = ["locate_replaced_nodes", "locate_retraced_bodies"]


def locate_replaced_nodes(after: PrintedGraph, before: PrintedGraph, reported: Container[str] = ()) -> PrintedGraph:
    """Return the graph with source lines for computing nodes that have none after the passes.

    They get the line of the node that they replaced. A replaced node is not in the graph any more, and its inputs are
    among the inputs of the new node. If there are several, the line of the first is taken (the product's, when a
    product and a sum became ``addmm``). If no replaced node is visible, because the pass ran earlier, the line of a
    user of the node is taken, unless torch reported the origin of the node.
    """
    own = [
        name for name, node in after.nodes.items() if node.computes and node.source_line is None and not node.subgraph
    ]
    found = {name: place for name in own if (place := _line_of_replaced(after.nodes[name], after, before))}
    for name in reversed(own):
        readers = (found.get(user) or after.nodes[user].source_line for user in after.users.get(name, ()))
        if (
            name not in found
            and name not in reported
            and (place := next((one for one in readers if one is not None), None))
        ):
            found[name] = place
    return after.with_source_lines(found)


def locate_retraced_bodies(graph: PrintedGraph, dynamo: PrintedGraph) -> PrintedGraph:
    """Return the graph with source lines for bodies that were traced again.

    Those are a score function of ``flex_attention`` or a step of ``scan``. Their nodes have no line, or the line of the
    call. They get the lines of the nodes that they match in the bodies of the same call in Dynamo's graph. A node
    without a match gets the line of the call.
    """
    found: dict[str, SourceLine] = {}
    for call, bodies in _subgraphs_by_line(graph).items():
        said = _subgraphs_by_line(dynamo).get(call, [])
        pairs = zip(bodies, said, strict=True) if len(bodies) == len(said) else [(one, "") for one in bodies]
        for body, own in pairs:
            nodes = [node for node in _computing_nodes_in(graph, [body]) if node.source_line in (None, call)]
            others = _computing_nodes_in(dynamo, [own] if own else said)
            found |= dict.fromkeys([node.name for node in nodes], call) | match_source_lines(nodes, others)
    return graph.with_source_lines(found)


def _subgraphs_by_line(graph: PrintedGraph) -> dict[SourceLine, list[str]]:
    """The subgraphs that each call takes, in order, by the source line of the call."""
    found: dict[SourceLine, list[str]] = {}
    for node in graph.nodes.values():
        given = [name for name in node.inputs if name in graph.returns]
        place = next(
            (
                place
                for name in (node.name, *graph.enclosing_nodes(node.subgraph))
                if (place := graph.nodes[name].source_line)
            ),
            None,
        )
        if given and place is not None:
            found.setdefault(place, []).extend(given)
    return found


def _computing_nodes_in(graph: PrintedGraph, subgraphs: list[str]) -> list[PrintedNode]:
    return [node for node in graph.nodes.values() if node.subgraph in subgraphs and node.computes]


def _line_of_replaced(node: PrintedNode, after: PrintedGraph, before: PrintedGraph) -> SourceLine | None:
    known = set(node.inputs)
    for old in before.nodes.values():
        gone = old.name not in after.nodes and bool(old.inputs)
        if gone and known.issuperset(old.inputs):
            if old.computes and old.source_line is not None:
                return old.source_line
            known.add(old.name)
    return None
