"""Simplifies loops (while_loop, scan): removes carried or collected values that are only returned."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from minifier.graph_problem import Case, copy_case
from minifier.simplify.plain_graphs import without_unread_inputs

# Positions of a loop's arguments: its body, and the initial values.
_LOOPS = {torch.ops.higher_order.while_loop: (1, 2), torch.ops.higher_order.scan: (0, 1)}


def fewer_carries(case: Case) -> Iterator[Case]:
    """Each loop without one of its results, the last first, and without the operations that only compute it."""
    for node in case.module.graph.nodes:
        if node.target in _LOOPS and all(user.target is operator.getitem for user in node.users):
            for place in _places(case.module, node):
                less = _without(case, node.name, place)
                if less is not None:
                    yield less


def _places(module: fx.GraphModule, node: fx.Node) -> list[int]:
    """The results that may be removed: all except the only carried and the only collected value of a scan.

    Without Dynamo, torch (2.11 to 2.15) runs a scan only if it has both, and the repro has to pass without Dynamo.
    """
    count, carried = len(_results(_body(module, node))), len(node.args[_LOOPS[node.target][1]])
    places = list(reversed(range(count)))
    if node.target is not torch.ops.higher_order.scan:
        return places
    only = {0} if carried == 1 else set()
    only |= {carried} if count - carried == 1 else set()
    return [place for place in places if place not in only]


def _body(module: fx.GraphModule, node: fx.Node) -> fx.GraphModule:
    return _graph(module, node.args[_LOOPS[node.target][0]])


def _graph(module: fx.GraphModule, function: Any) -> fx.GraphModule:
    return operator.attrgetter(str(function.target))(module)


def _results(body: fx.GraphModule) -> list[Any]:
    return list(body.graph.output_node().args[0])


def _without(case: Case, name: str, place: int) -> Case | None:
    copied = copy_case(case)
    graph = copied.module.graph
    node = next(node for node in graph.nodes if node.name == name)
    if not _drop_returned(node, place) or not _drop_inside(copied.module, node, place):
        return None
    for user in list(node.users):
        if user.args[1] > place:
            user.args = (node, user.args[1] - 1)
    graph.eliminate_dead_code()  # the operations that computed its initial value
    return without_unread_inputs(copied)


def _drop_returned(node: fx.Node, place: int) -> bool:
    """Remove a result from the graph's outputs. False if something else reads it, or it is the only output."""
    output = node.graph.output_node()
    gone = [user for user in node.users if user.args[1] == place]
    left = tuple(value for value in output.args[0] if value not in gone)
    if not left or any(reader is not output for value in gone for reader in value.users):
        return False
    output.args = (left,)
    for value in gone:
        node.graph.erase_node(value)
    return True


def _drop_inside(module: fx.GraphModule, node: fx.Node, place: int) -> bool:
    """Remove a result from the loop's functions. False if another carried value depends on it."""
    body, begin = _body(module, node), _LOOPS[node.target][1]
    kept = [value for i, value in enumerate(_results(body)) if i != place]
    body.graph.output_node().args = (tuple(kept),)
    body.graph.eliminate_dead_code()
    carried = list(node.args[begin])
    if place < len(carried):
        functions = [_graph(module, function) for function in node.args[:begin]]
        arguments = [function.graph.find_nodes(op="placeholder")[place] for function in functions]
        if any(argument.users for argument in arguments):
            return False
        for argument in arguments:
            argument.graph.erase_node(argument)
        del carried[place]
        node.args = (*node.args[:begin], type(node.args[begin])(carried), *node.args[begin + 1 :])
    for function in node.args[: _LOOPS[node.target][0] + 1]:
        _graph(module, function).recompile()
    return True
