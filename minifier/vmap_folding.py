"""Folds a vmap in a graph into one operation with a subgraph, so that it can be reduced and written as source.

Dynamo records `torch.vmap` as a sequence: enter, wrap each input, the operations, unwrap each result, leave. These
calls have no meaning one by one, and no program can make them.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from minifier.torch_private import VmapStep, is_transform_boundary, vmap_step


def vmap_call(function: Callable[..., Any], *operands: Any, in_dims: Any, out_dims: Any, randomness: str) -> Any:
    """The target of a node that calls ``torch.vmap(function, ...)``."""
    return torch.vmap(function, in_dims, out_dims, randomness)(*operands)


def fold_vmaps(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with each vmap folded into one operation. Unchanged without a vmap, or if one is mixed with a grad."""
    nodes = list(module.graph.nodes)
    steps = {node: step for node in nodes if (step := vmap_step(node)) is not None}
    if not steps or any(is_transform_boundary(node) and node not in steps for node in nodes):
        return module
    folding = _Folding(module, steps)
    level = _Level(fx.Graph())
    try:
        folding.fold(nodes, level)
    except _MixedError:
        return module
    changed = fx.GraphModule(folding.attributes(level.graph), level.graph)
    changed.meta = dict(module.meta)
    return changed


class _MixedError(Exception):
    """A value of a vmap is used outside of it without an unwrap, or a step has the wrong level."""


@dataclass(slots=True)
class _Level:
    """A graph under construction: the whole, or the inside of a vmap, whose parent is ``outer``."""

    graph: fx.Graph
    outer: _Level | None = None
    depth: int = 0
    copied: dict[fx.Node, fx.Node] = field(default_factory=dict)
    operands: dict[tuple[fx.Node, int | None], fx.Node] = field(default_factory=dict)
    results: list[tuple[fx.Node, VmapStep]] = field(default_factory=list)

    def node_for(self, node: fx.Node) -> fx.Node:
        """The copy of a node at this level. A node from outside becomes an operand that is not mapped over."""
        if node in self.copied:
            return self.copied[node]
        if self.outer is None:
            raise _MixedError
        return self.operand(node, None)

    def operand(self, node: fx.Node, dim: int | None) -> fx.Node:
        """The placeholder for an operand that is mapped over ``dim``; None for one that is not mapped over."""
        if (node, dim) not in self.operands:
            assert self.outer is not None
            self.outer.node_for(node)
            place = self.graph.placeholder(node.name)
            place.target, place.meta = place.name, copy.copy(node.meta)  # a node may be an operand in two ways
            self.operands[node, dim] = place
        return self.operands[node, dim]


class _Folding:
    """Copies nodes to levels, and turns each vmap into a call of its subgraph."""

    def __init__(self, module: fx.GraphModule, steps: dict[fx.Node, VmapStep]) -> None:
        self._module = module
        self._steps = steps
        self._inner: dict[str, fx.GraphModule] = {}

    def attributes(self, graph: fx.Graph) -> dict[str, Any]:
        """The attributes that a graph refers to by name."""
        names = [str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")]
        return {n: self._inner[n] if n in self._inner else operator.attrgetter(n)(self._module) for n in names}

    def fold(self, nodes: Sequence[fx.Node], level: _Level) -> None:
        """Copy nodes to a level. Raises `_MixedError`."""
        pending = iter(nodes)
        for node in pending:
            step = self._steps.get(node)
            if step is None:
                level.copied[node] = level.graph.node_copy(node, level.node_for)
            elif step.kind == "enter":
                inner = _Level(fx.Graph(), level, level.depth + 1)
                self.fold(self._inside(pending), inner)
                self._call(step, inner, level)
            elif step.kind == "wrap":
                self._check(step, level)
                assert isinstance(step.value, fx.Node)
                level.copied[node] = level.operand(step.value, step.dim)
            elif step.kind == "unwrap":
                self._check(step, level)
                level.results.append((node, step))

    def _check(self, step: VmapStep, level: _Level) -> None:
        if step.level != level.depth or not isinstance(step.value, fx.Node):
            raise _MixedError

    def _inside(self, pending: Any) -> list[fx.Node]:
        """The nodes up to the end of the vmap that was just entered. Raises `_MixedError` if it has no end."""
        inside: list[fx.Node] = []
        depth = 1
        for node in pending:
            kind = self._steps[node].kind if node in self._steps else None
            depth += {"enter": 1, "leave": -1}.get(str(kind), 0)
            if depth == 0:
                return inside
            inside.append(node)
        raise _MixedError

    def _call(self, step: VmapStep, inner: _Level, level: _Level) -> None:
        """Add the call of a finished vmap to the outer level, and map its results to nodes there."""
        returned = tuple(inner.node_for(step.value) for _, step in inner.results if step.value is not None)
        dims = tuple(step.dim for _, step in inner.results)
        single = len(returned) == 1
        inner.graph.output(returned[0] if single else returned)
        name = f"mapped_{len(self._inner)}"
        self._inner[name] = fx.GraphModule(self.attributes(inner.graph), inner.graph)
        function = level.graph.get_attr(name)
        operands = [level.node_for(node) for node, _ in inner.operands]
        words = {
            "in_dims": tuple(dim for _, dim in inner.operands),
            "out_dims": dims[0] if single else dims,
            "randomness": step.randomness,
        }
        call = level.graph.create_node("call_function", vmap_call, (function, *operands), words, name="vmap")
        for i, (node, _) in enumerate(inner.results):
            made = call if single else level.graph.call_function(operator.getitem, (call, i))
            made.meta = copy.copy(node.meta)
            level.copied[node] = made
