"""Counts the operators on tensors that run in Dynamo's graphs."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dynadiag.torch_private import trial as torch_private


class OperatorCounter:
    """Counts from now on, for the rest of the process.

    ``ran`` counts each operator as often as its graph is called, ``calls`` the calls of all graphs. ``largest`` is the
    largest graph of each function.
    """

    def __init__(self) -> None:
        self.ran = self.calls = 0
        self.largest: dict[CodeType, int] = {}
        torch_private.wrap_call_user_compiler(self._compile)

    def _compile(self, inner: Callable[..., Any], output: Any, graph: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        operators = tensor_operators(graph)
        compiled = inner(output, graph, *args, **kwargs)
        if torch_private.is_hop_compile():
            return compiled
        code = torch_private.compiled_code(output)
        self.largest[code] = max(operators, self.largest.get(code, 0))

        def counted(*inputs: Any) -> Any:
            self.ran += operators
            self.calls += 1
            return compiled(*inputs)

        return counted


def tensor_operators(module: fx.GraphModule) -> int:
    """How many nodes of a graph, and of the graphs in it, compute a tensor. Those on symbols of sizes and numbers come
    and go with the symbols.
    """
    nodes = [node for each in module.modules() if isinstance(each, fx.GraphModule) for node in each.graph.nodes]
    values = [node.meta.get("example_value") for node in nodes if node.op.startswith("call_")]
    return sum(any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)) for value in values)
