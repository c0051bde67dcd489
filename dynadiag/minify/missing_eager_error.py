"""Reduces a graph that raises in eager mode but returns a result when it is compiled.

The usual reduction cannot be used, because it runs the graph uncompiled. But the operation that raises is known. It is
isolated with the arguments that it had, and then its inputs are simplified.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx import GraphModule, Node

from minifier.graph_problem import Case, Fails, case_key, copy_case
from minifier.simplify.plain_inputs import contiguous, fill_all_inputs, in_float32, without_grad
from minifier.simplify.shapes import shrink_all_sizes, shrink_one_axis, shrink_one_dimension, shrink_one_size
from minifier.simplify.simplifier import Variants
from minifier.tensors import map_leaves

_PASSES: tuple[Variants, ...] = (
    shrink_all_sizes,
    shrink_one_size,
    shrink_one_axis,
    shrink_one_dimension,
    in_float32,
    contiguous,
    without_grad,
)


def reduce_missing_eager_error(
    module: GraphModule, inputs: Sequence[Any], fails: Fails
) -> tuple[GraphModule, list[Any]]:
    """Isolate the operation that raises, and simplify its inputs while ``fails`` holds.

    ``fails`` says that a graph returns a result when it is compiled. The result is the graph and its inputs.
    """
    case = Case(module, tuple(inputs))
    wanted = _eager_exception_type(case)

    def still_fails(candidate: Case) -> bool:
        if _eager_exception_type(candidate) is not wanted:
            return False
        copied = copy_case(candidate)
        return fails(copied.module, list(copied.inputs))

    isolated = _isolate_raising_node(case)
    if isolated is not None and still_fails(isolated):
        case = isolated
    for variants in _PASSES:
        case = _take_variants(case, variants, still_fails)
    case = next((variant for variant in fill_all_inputs(case) if still_fails(variant)), case)
    return case.module, list(case.inputs)


def _take_variants(case: Case, variants: Variants, fails: Callable[[Case], bool]) -> Case:
    """Take variants, each made from the last one that still fails."""
    seen = {case_key(case)}
    while True:
        for variant in variants(case):
            key = case_key(variant)
            if key not in seen and (seen.add(key) or fails(variant)):  # type: ignore[func-returns-value]  # remembers
                case = variant
                break
        else:
            return case


def _eager_exception_type(case: Case) -> type[Exception] | None:
    """The type of the exception that the graph raises uncompiled, or None."""
    copied = copy_case(case)
    try:
        copied.module.forward(*copied.inputs)
    except Exception as error:  # noqa: BLE001 - any exception is the answer
        return type(error)
    return None


class _FailingNodeFinder(fx.Interpreter):
    """Runs a graph until a node raises; `failed` is that node with its arguments."""

    failed: tuple[Node, Any, Any] | None = None

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        try:
            return super().run_node(n)
        except Exception:
            self.failed = self.failed or (n, args, kwargs)
            raise


def _isolate_raising_node(case: Case) -> Case | None:
    """The node that raises as a separate graph, with its tensor arguments as inputs; None if it cannot be isolated."""
    copied = copy_case(case)
    interpreter = _FailingNodeFinder(copied.module)
    with contextlib.suppress(Exception):  # the graph raises: the interpreter keeps the node
        interpreter.run(*copied.inputs)
    if interpreter.failed is None or interpreter.failed[0].op not in ("call_function", "call_method"):
        return None
    node, args, kwargs = interpreter.failed
    graph = fx.Graph()
    inputs: list[torch.Tensor] = []

    def as_input(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        inputs.append(leaf.detach().clone())
        return graph.placeholder(f"x{len(inputs)}")

    called = graph.create_node(node.op, node.target, map_leaves(as_input, args), map_leaves(as_input, kwargs))
    called.meta = copy.copy(node.meta)
    graph.output((called,))
    return Case(GraphModule({}, graph), tuple(inputs))
