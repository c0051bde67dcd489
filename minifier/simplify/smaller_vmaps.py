"""Simplifies vmaps: keeps one result, or replaces a value computed inside by a new operand."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from minifier.graph_analysis import interpret
from minifier.graph_problem import Case, copy_case
from minifier.tensors import compact_copy
from minifier.torch_private import restore_torch_state
from minifier.vmap_folding import vmap_call


def single_results(case: Case) -> Iterator[Case]:
    """Each vmap whose results are only returned, with a single result: one of its results, or an argument of one."""
    for node in _vmaps(case.module):
        results = _results(_inner(case.module, node))
        if not all(reader.op == "output" for value in _result_nodes(node) for reader in value.users):
            continue
        if len(results) > 1:
            yield from (_with_result(case, node.name, result.name) for result in results)
        sources = (source for result in results for source in result.all_input_nodes)
        yield from (_with_result(case, node.name, source.name) for source in sources if source.op.startswith("call_"))


def values_as_operands(case: Case) -> Iterator[Case]:
    """A value computed inside a vmap as a new operand, the last ones first: the operations before it may then go."""
    values = interpret(case.module, case.inputs).values
    known = {node: values[i] for i, node in enumerate(case.module.graph.nodes)}
    for node in _vmaps(case.module):
        for inside in reversed(_inner(case.module, node).graph.nodes):
            value = _value_inside(case, node, inside.name, known) if inside.op.startswith("call_") else None
            if value is not None:
                yield _with_operand(case, node.name, inside.name, value)


def _vmaps(module: fx.GraphModule) -> list[fx.Node]:
    return list(module.graph.find_nodes(op="call_function", target=vmap_call))


def _inner(module: fx.GraphModule, node: fx.Node) -> fx.GraphModule:
    function: Any = node.args[0]
    return operator.attrgetter(str(function.target))(module)


def _named(graph: fx.Graph, name: str) -> fx.Node:
    return next(node for node in graph.nodes if node.name == name)


def _finished(inner: fx.GraphModule) -> None:
    inner.graph.eliminate_dead_code()
    inner.recompile()


def _results(inner: fx.GraphModule) -> list[fx.Node]:
    returned: Any = inner.graph.output_node().args[0]
    return list(returned) if isinstance(returned, tuple) else [returned]


def _result_nodes(node: fx.Node) -> list[fx.Node]:
    """The nodes for the results of a vmap: its items if it has several results, else the vmap itself."""
    return list(node.users) if isinstance(node.kwargs["out_dims"], tuple) else [node]


def _with_result(case: Case, name: str, inside: str) -> Case:
    """The vmap with one node inside it as its only result."""
    copied = copy_case(case)
    node = _named(copied.module.graph, name)
    inner = _inner(copied.module, node)
    inner.graph.output_node().args = (_named(inner.graph, inside),)
    _finished(inner)
    end = copied.module.graph.output_node()
    former = _result_nodes(node)
    end.args = (tuple(dict.fromkeys(node if value in former else value for value in end.args[0])),)
    for value in former:
        if value is not node:
            copied.module.graph.erase_node(value)
    node.kwargs = {**node.kwargs, "out_dims": 0}
    copied.module.recompile()
    return copied


def _value_inside(case: Case, node: fx.Node, name: str, known: dict[fx.Node, Any]) -> torch.Tensor | None:
    """The batched value of a node inside a vmap; None if it is not a tensor."""
    function = copy.deepcopy(_inner(case.module, node))
    function.graph.output_node().args = (_named(function.graph, name),)
    _finished(function)
    operands = [known[operand] if isinstance(operand, fx.Node) else operand for operand in node.args[1:]]
    try:
        with restore_torch_state():
            value = vmap_call(function, *operands, **{**node.kwargs, "out_dims": 0})
    except Exception:  # noqa: BLE001  a node may have a value that a vmap cannot return
        return None
    return compact_copy(value) if isinstance(value, torch.Tensor) else None


def _with_operand(case: Case, name: str, inside: str, value: torch.Tensor) -> Case:
    copied = copy_case(case)
    graph = copied.module.graph
    node = _named(graph, name)
    with graph.inserting_before(next(iter(graph.nodes))):
        place = graph.placeholder(inside)
    node.args = (*node.args, place)
    node.kwargs = {**node.kwargs, "in_dims": (*node.kwargs["in_dims"], 0)}
    inner = _inner(copied.module, node)
    old = _named(inner.graph, inside)
    last = inner.graph.find_nodes(op="placeholder")[-1]
    with inner.graph.inserting_after(last):
        new = inner.graph.placeholder(inside)
    new.meta = copy.copy(old.meta)
    old.replace_all_uses_with(new)
    inner.graph.erase_node(old)
    _finished(inner)
    copied.module.recompile()
    return Case(copied.module, (value, *copied.inputs))
