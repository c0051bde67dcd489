"""Smaller subgraphs of higher-order operations: to the search they are one operation, here they are looked into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch import fx

from minifier.graphs import Case, own
from minifier.tensors import same_metadata

__all__ = ["smaller_subgraphs"]

# What AOTAutograd and Dynamo say of a node's value. Sizes that have changed since do not matter: equal ones stayed so.
_KEYS = ("val", "example_value")


def smaller_subgraphs(case: Case) -> Iterator[Case]:
    """Each subgraph with operations replaced by one of their arguments: all that can be, then parts, then one each."""
    for path in _paths(case.module):
        names = [node.name for node in _at(case.module, path).graph.nodes if _instead(node) is not None][::-1]
        size = len(names)
        while size:
            for begin in range(0, len(names), size):
                yield _bypassed(case, path, names[begin : begin + size])
            size //= 2


def _paths(module: torch.nn.Module) -> list[str]:
    """The graphs inside a graph, by attribute, each followed by those inside it."""
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


def _instead(node: fx.Node) -> fx.Node | None:
    """An argument that can stand for a node: one of its kind, by what torch noted of both."""
    if not node.op.startswith("call_") or not node.users:
        return None
    return next((other for other in node.all_input_nodes if same_metadata(_value(other), _value(node))), None)


def _value(node: fx.Node) -> Any:
    return next((node.meta[key] for key in _KEYS if key in node.meta), None)


def _bypassed(case: Case, path: str, names: Sequence[str]) -> Case:
    copied = own(case)
    inner = _at(copied.module, path)
    for node in [node for node in inner.graph.nodes if node.name in names]:
        instead = _instead(node)
        if instead is not None:
            node.replace_all_uses_with(instead)
            inner.graph.erase_node(node)
    inner.graph.eliminate_dead_code()
    inner.recompile()
    return copied
