"""Simplifies the subgraphs of higher-order operations. For the search such an operation is one part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import fx

from minifier.graph_problem import Case, copy_case
from minifier.simplify.plain_graphs import without_unread_inputs
from minifier.tensors import same_metadata
from minifier.vmap_folding import vmap_call

# The keys of a node's fake value in AOTAutograd and Dynamo. They may have old sizes, but equal sizes have stayed equal.
_KEYS = ("val", "example_value")


def smaller_subgraphs(case: Case) -> Iterator[Case]:
    """Each subgraph with operations bypassed by one of their arguments: all, then halves, down to single ones."""
    for path in _paths(case.module):
        names = [node.name for node in _at(case.module, path).graph.nodes if _replacement(node) is not None][::-1]
        size = len(names)
        while size:
            for begin in range(0, len(names), size):
                yield _bypass(case, path, names[begin : begin + size])
            size //= 2


def fewer_operands(case: Case) -> Iterator[Case]:
    """Without operands that no subgraph reads: of all operations at once, of each operation, then one by one.

    One by one, because a vmap needs an operand to know its batch size. The last operands of a call are the last
    arguments of each of its subgraphs.
    """
    unread = {node.name: places for node in case.module.graph.nodes if (places := _unread(case.module, node))}
    if unread:
        yield _without_operands(case, unread)
    if len(unread) > 1:
        yield from (_without_operands(case, {name: places}) for name, places in unread.items())
    for name, places in unread.items():
        if len(places) > 1:
            yield from (_without_operands(case, {name: [place]}) for place in places)


def _operands(node: fx.Node) -> tuple[Any, ...]:
    """The operands at the end of a call: a list, or the arguments after the subgraphs and plain values."""
    if not node.args:
        return ()
    if isinstance(node.args[-1], (tuple, list)):
        return tuple(node.args[-1])
    plain = [i for i, arg in enumerate(node.args) if not isinstance(arg, fx.Node) or arg.op == "get_attr"]
    return node.args[plain[-1] + 1 :] if plain else ()


def _subgraphs(module: fx.GraphModule, node: fx.Node) -> list[fx.GraphModule]:
    if not isinstance(node.target, torch._ops.HigherOrderOperator) and node.target is not vmap_call:
        return []
    inner = [_at(module, str(arg.target)) for arg in node.args if isinstance(arg, fx.Node) and arg.op == "get_attr"]
    return [graph for graph in inner if isinstance(graph, fx.GraphModule)]


def _unread(module: fx.GraphModule, node: fx.Node) -> list[int]:
    """The operands of a call that no subgraph reads. They are counted from the end; the last one is 1."""
    arguments = [list(graph.graph.find_nodes(op="placeholder")) for graph in _subgraphs(module, node)]
    if not arguments:
        return []
    last = min(len(_operands(node)), *map(len, arguments))
    return [i for i in range(1, last + 1) if not any(placeholders[-i].users for placeholders in arguments)]


def _without_operands(case: Case, unwanted: Mapping[str, Sequence[int]]) -> Case:
    """Remove operands. ``unwanted`` maps names of operations to positions of operands, counted from the end."""
    copied = copy_case(case)
    for node in [node for node in copied.module.graph.nodes if node.name in unwanted]:
        unread, operands = unwanted[node.name], _operands(node)
        kept = tuple(operand for i, operand in enumerate(operands) if len(operands) - i not in unread)
        listed = isinstance(node.args[-1], (tuple, list))
        if "in_dims" in node.kwargs:  # of a vmap: one for each operand
            dims = node.kwargs["in_dims"]
            left = tuple(dim for i, dim in enumerate(dims) if len(dims) - i not in unread)
            node.kwargs = {**node.kwargs, "in_dims": left}
        node.args = (*node.args[:-1], kept) if listed else (*node.args[: len(node.args) - len(operands)], *kept)
        for graph in _subgraphs(copied.module, node):
            placeholders = list(graph.graph.find_nodes(op="placeholder"))
            for i in unread:
                graph.graph.erase_node(placeholders[-i])
            graph.recompile()
    copied.module.graph.eliminate_dead_code()  # the operations that computed the operands
    return without_unread_inputs(copied)


def _paths(module: torch.nn.Module) -> list[str]:
    """The attribute paths of all subgraphs, each followed by its own subgraphs."""
    if not isinstance(module, fx.GraphModule):
        return []
    own_paths = dict.fromkeys(str(node.target) for node in module.graph.find_nodes(op="get_attr"))
    found: list[str] = []
    for path in own_paths:
        inner = _at(module, path)
        if isinstance(inner, fx.GraphModule):
            found += [path, *(f"{path}.{deeper}" for deeper in _paths(inner))]
    return found


def _at(module: torch.nn.Module, path: str) -> Any:
    return reduce(getattr, path.split("."), module)


def _replacement(node: fx.Node) -> fx.Node | None:
    """An argument that can replace a node: one with the same metadata."""
    if not node.op.startswith("call_") or not node.users:
        return None
    return next((other for other in node.all_input_nodes if same_metadata(_value(other), _value(node))), None)


def _value(node: fx.Node) -> Any:
    return next((node.meta[key] for key in _KEYS if key in node.meta), None)


def _bypass(case: Case, path: str, names: Sequence[str]) -> Case:
    copied = copy_case(case)
    inner = _at(copied.module, path)
    for node in [node for node in inner.graph.nodes if node.name in names]:
        instead = _replacement(node)
        if instead is not None:
            node.replace_all_uses_with(instead)
            inner.graph.erase_node(node)
    inner.graph.eliminate_dead_code()
    inner.recompile()
    return copied
