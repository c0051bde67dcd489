"""Graphs and oracles to reduce: random dataflow with culprits that must be present, or be connected."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import fx

_ONE = (torch.relu, torch.sin, torch.tanh)
_TWO = (torch.add, torch.mul, torch.maximum)
FailsOn = Callable[[fx.GraphModule, list[Any]], bool]


def random_graph(size: int, seed: int, reach: int | None = None) -> fx.GraphModule:
    """`size` operations on three inputs of one shape; `reach` bounds how far back an argument lies."""
    draw = random.Random(seed)
    graph = fx.Graph()
    pool = [graph.placeholder(name) for name in ("x", "y", "z")]
    for _ in range(size):
        target = draw.choice(_ONE + _TWO)
        near = pool if reach is None else pool[-reach:]
        pool.append(graph.call_function(target, tuple(draw.choice(near) for _ in range(2 if target in _TWO else 1))))
    graph.output(tuple(node for node in pool if not node.users and node.op != "placeholder"))
    return fx.GraphModule({}, graph)


def operations(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]


def names(module: fx.GraphModule) -> set[str]:
    return {node.name for node in operations(module)}


def inputs() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(4, generator=draw) for _ in range(3)]


def all_present(culprits: Sequence[str]) -> FailsOn:
    return lambda module, _: set(culprits) <= names(module)


def connected(culprits: Sequence[str]) -> FailsOn:
    """Whether all are present, and each reads the one before it, directly or indirectly."""

    def fails(module: fx.GraphModule, _: list[Any]) -> bool:
        by_name = {node.name: node for node in operations(module)}
        if not set(culprits) <= set(by_name):
            return False
        return all(by_name[before] in ancestors(by_name[after]) for before, after in pairwise(culprits))

    return fails


def ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    pending = list(node.all_input_nodes)
    while pending:
        other = pending.pop()
        if other not in found and other.op != "placeholder":
            found.add(other)
            pending.extend(other.all_input_nodes)
    return found


def loose_culprits(module: fx.GraphModule, count: int, seed: int) -> list[str]:
    return [node.name for node in random.Random(seed).sample(operations(module), count)]


def connected_culprits(module: fx.GraphModule, count: int, seed: int) -> list[str]:
    """Operations each of which leads to the next, in order; drawn again until there are enough on one path."""
    draw = random.Random(seed)
    while True:
        path = [draw.choice(operations(module))]
        while len(path) < count and (above := ancestors(path[-1])):
            path.append(draw.choice(sorted(above, key=lambda node: node.name)))
        if len(path) == count:
            return [node.name for node in reversed(path)]
