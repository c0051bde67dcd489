"""Finds the wrong node inside a kernel that computes several and stores the last.

What lies between the stored values that the kernel reads and the one that it stores is compiled once more, with each of
its values returned, and judged as the whole graph was. The first wrong one is named. Where none is wrong then, because
other code was generated, nothing is known beyond the stored value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from dynadiag.node_values.judgement import StoredValue, judge
from dynadiag.node_values.node_run import is_mutating
from dynadiag.node_values.summary import is_summarized
from dynadiag.torch_private.trial import compile_in_this_process

_MAX_NODES = 64  # that are compiled once more


def wrong_within(
    module: GraphModule, wrong: str, stored: Mapping[str, StoredValue], values: Mapping[str, Any], state: Any
) -> tuple[str, torch.Tensor] | None:
    """Return the first wrong node between stored values and the node ``wrong``, with its compiled value.

    ``values`` are those of all nodes, from what compiled code stored. None if nothing lies between, if a node there
    writes to its input, or if none is wrong once compiled so. Raises what the compiler raises.
    """
    last = next(node for node in module.graph.nodes if node.name == wrong)
    inside = _between(last, stored, values)
    if len(inside) < 2 or len(inside) > _MAX_NODES or any(_is_written(node) for node in inside):
        return None
    part, inputs = _part(module, inside, values)
    compile_in_this_process()
    with torch.no_grad():
        returned = torch.compile(part, fullgraph=True)(*inputs)
    names = [node.name for node in inside if is_summarized(values.get(node.name))]
    compiled = {
        name: StoredValue(value, None) for name, value in zip(names, returned, strict=True) if is_summarized(value)
    }
    judged = judge(part, inputs, compiled, state).of
    first = next((name for name in names if (one := judged.get(name)) is not None and one.wrong), None)
    return None if first is None else (first, compiled[first].value)


def _between(last: Node, stored: Mapping[str, StoredValue], values: Mapping[str, Any]) -> list[Node]:
    """The nodes that a stored one is computed of since earlier stored ones, itself last, in the order of the graph."""
    found, waiting = {last}, [last]
    while waiting:
        for node in waiting.pop().all_input_nodes:
            if node.op.startswith("call_") and node.name not in stored and node not in found and node.name in values:
                found.add(node)
                waiting.append(node)
    return [node for node in last.graph.nodes if node in found]


def _is_written(node: Node) -> bool:
    """Whether a node writes to what it reads, or others write to it or to what it reads."""
    around = [node, *(user for each in (node, *node.all_input_nodes) for user in each.users)]
    return any(is_mutating(each) for each in around)


def _part(module: GraphModule, inside: list[Node], values: Mapping[str, Any]) -> tuple[GraphModule, tuple[Any, ...]]:
    """A graph of these nodes that returns each of their tensors, and its inputs."""
    graph, copies, inputs = Graph(), dict[Node, Node](), list[Any]()
    outside = dict.fromkeys(node for each in inside for node in each.all_input_nodes if node not in inside)
    for node in outside:
        value = values[node.name]
        if isinstance(value, GraphModule):
            copies[node] = graph.get_attr(str(node.target))
        else:
            copies[node] = graph.placeholder(node.name)
            inputs.append(value.detach() if isinstance(value, torch.Tensor) else value)
    for node in inside:
        copies[node] = graph.node_copy(node, lambda each: copies[each])
        copies[node].name = node.name
    graph.output(tuple(copies[node] for node in inside if is_summarized(values.get(node.name))))
    return GraphModule(module, graph), tuple(inputs)
