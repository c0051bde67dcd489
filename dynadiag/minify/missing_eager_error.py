"""Graphs that raise uncompiled and return a result compiled: there the usual reduction, which runs graphs, has no hold.

The operation that raises is known: it is tried by itself, on the values that it was given, and then on plainer ones.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx import GraphModule, Node

__all__ = ["reduce_missing_eager_error"]

Fails = Callable[[GraphModule, list[Any]], bool]
_PASSES = (
    ("minifier.simplify.shapes", "all_sizes"),
    ("minifier.simplify.shapes", "one_size"),
    ("minifier.simplify.shapes", "one_axis"),
    ("minifier.simplify.shapes", "one_dimension"),
    ("minifier.simplify.plain_inputs", "in_float32"),
    ("minifier.simplify.plain_inputs", "contiguous"),
    ("minifier.simplify.plain_inputs", "without_grad"),
)


def reduce_missing_eager_error(
    module: GraphModule, inputs: Sequence[Any], fails: Fails
) -> tuple[GraphModule, list[Any]]:
    """The operation that raises with the plainest inputs on which it does and the compiled one does not."""
    graphs = importlib.import_module("minifier.graph_problem")
    case = graphs.Case(module, tuple(inputs))
    wanted = _eager_exception_type(case)
    alone = _isolate_raising_node(graphs, case)
    if alone is not None and _eager_exception_type(alone) is wanted and _fails_on_copy(graphs, fails, alone):
        case = alone

    def still(candidate: Any) -> bool:
        return _eager_exception_type(candidate) is wanted and _fails_on_copy(graphs, fails, candidate)

    for home, name in _PASSES:
        case = _take_variants(graphs, case, getattr(importlib.import_module(home), name), still)
    plainest = importlib.import_module("minifier.simplify.plain_inputs").plain_values
    case = next((variant for variant in plainest(case) if still(variant)), case)
    return case.module, list(case.inputs)


def _take_variants(
    graphs: Any, case: Any, variants: Callable[[Any], Iterator[Any]], fails: Callable[[Any], bool]
) -> Any:
    """One variant after the other, each made from the last that still fails."""
    seen = {graphs.canonical(case)}
    while True:
        for variant in variants(case):
            key = graphs.canonical(variant)
            if key not in seen and (seen.add(key) or fails(variant)):  # type: ignore[func-returns-value]  # remembers
                case = variant
                break
        else:
            return case


def _fails_on_copy(graphs: Any, fails: Fails, case: Any) -> bool:
    own = graphs.own(case)
    return fails(own.module, list(own.inputs))


def _eager_exception_type(case: Any) -> type[Exception] | None:
    """What the graph raises when it is run uncompiled."""
    graphs = importlib.import_module("minifier.graph_problem")
    own = graphs.own(case)
    try:
        own.module.forward(*own.inputs)
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is asked
        return type(error)
    return None


class _FailingNodeFinder(fx.Interpreter):
    """Runs a graph up to where it raises; then `failed` is the node, with its arguments."""

    failed: tuple[Node, Any, Any] | None = None

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        try:
            return super().run_node(n)
        except Exception:
            self.failed = self.failed or (n, args, kwargs)
            raise


def _isolate_raising_node(graphs: Any, case: Any) -> Any:
    """The node that raises, as a graph of its own, with its tensors as inputs; None where it cannot be told."""
    own = graphs.own(case)
    interpreter = _FailingNodeFinder(own.module)
    with contextlib.suppress(Exception):  # that it raises is known; which node does is what is asked
        interpreter.run(*own.inputs)
    if interpreter.failed is None or interpreter.failed[0].op not in ("call_function", "call_method"):
        return None
    node, args, kwargs = interpreter.failed
    graph, inputs = fx.Graph(), []

    def given(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        inputs.append(leaf.detach().clone())
        return graph.placeholder(f"x{len(inputs)}")

    tensors = importlib.import_module("minifier.tensors")
    called = graph.create_node(node.op, node.target, tensors.map_leaves(given, args), tensors.map_leaves(given, kwargs))
    called.meta = copy.copy(node.meta)
    graph.output((called,))
    return graphs.Case(GraphModule({}, graph), tuple(inputs))
