"""Hooks in AOTAutograd, in the trial's process: what it does to a graph before Inductor sees it.

- a kernel in Python that takes the place of a composite operator's own (a decomposition that needs no table);
- functionalization, which replaces what is changed in place, and views of it;
- the partitioner, and its removal of common subexpressions;
- the tracing of each node of Dynamo's graph: a node that is off runs uncompiled, between graphs that are compiled.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynadiag.bisection.fake_kernel_check import OPERATOR_KIND, runs_uncompiled
from dynadiag.bisection.function_hooks import hook_function
from dynadiag.bisection.pass_changes import GraphBefore, report_nodes
from dynadiag.torch_private import aot
from dynadiag.torch_private import bisect as torch_private
from dynadiag.trial.context import TRIAL

_PARTITIONER = "min_cut_rematerialization_partition"
_CSE = "fx_graph_cse"
_COMPUTING = ("call_function", "call_method", "call_module")
_IN_PLACE_FUNCTIONS = {operator.setitem, torch.Tensor.__setitem__} | {
    getattr(operator, name) for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior")
}


def install() -> None:
    """Install the hooks in torch, once per process."""
    hook_function(aot.min_cut_partition(), _partition)
    aot.wrap_aot_module(_functionalization_on)


def _partition(function: Any, joint: GraphModule, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The partitioner. Off, all that the backward reads is saved; to remove common subexpressions is a pass of
    its own.
    """
    if not TRIAL.observes("pass"):
        return function(joint, inputs, *args, **kwargs)
    here = {"compile_id": torch_private.compile_id(), "graph": "joint"}
    key = f"{here['compile_id']}/joint/{_PARTITIONER}"
    key += f"/{TRIAL.occurrence('pass', key)}"
    describe = lambda: {"name": _PARTITIONER, "target": _PARTITIONER, **here}  # noqa: E731
    cse = functools.partial(_cse, here, aot.cse())
    if not TRIAL.is_on("pass", key, describe):
        if aot.is_cse_on():
            joint.graph = cse(joint.graph)
        return aot.save_all_partition(joint, inputs, **kwargs)
    with aot.cse_replaced(cse):
        forward, backward = function(joint, inputs, *args, **kwargs)
    _report_recomputed(key, forward, backward)
    return forward, backward


def _report_recomputed(key: str, forward: GraphModule, backward: GraphModule) -> None:
    computed = {node.name for node in forward.graph.nodes if node.op == "call_function"}
    report_nodes(key, [n for n in backward.graph.nodes if n.op == "call_function" and n.name in computed])


def _cse(here: dict[str, Any], inner: Callable[..., Any], graph: Any, **options: Any) -> Any:
    """The partitioner's removal of common subexpressions. The program may have put another function in its place."""
    key = f"{here['compile_id']}/joint/{_CSE}"
    key += f"/{TRIAL.occurrence('pass', key)}"
    if not TRIAL.is_on("pass", key, lambda: {"name": _CSE, "target": _CSE, **here}):
        return graph
    before = GraphBefore(graph)
    new = inner(graph, **options)
    before.report_changes(key, new)
    return new


def _functionalization_on(module: GraphModule) -> bool:
    if not TRIAL.observes("functionalization"):
        return True
    here = {"compile_id": torch_private.compile_id(), "graph": "dynamo"}
    changing = [node for node in module.graph.nodes if changes_in_place(node)]
    name = "+".join(node.name for node in changing) or "views"
    describe = lambda: {"name": name, "lines": torch_private.user_lines(changing), **here}  # noqa: E731
    return TRIAL.is_on("functionalization", f"{here['compile_id']}/functionalization", describe)


def changes_in_place(node: Node) -> bool:
    """Whether a node of Dynamo's graph writes to one of its arguments, as far as its name says so."""
    if node.op == "call_method":
        name = str(node.target)
    elif node.op == "call_function":
        if node.target in _IN_PLACE_FUNCTIONS or node.kwargs.get("out") is not None or node.kwargs.get("inplace"):
            return True
        name = str(getattr(node.target, "__name__", ""))
    else:
        return False
    return name.partition(".")[0].endswith("_") and not name.endswith("__")


def report_nodes_of(module: GraphModule) -> None:
    """Report the nodes of a graph of Dynamo's, where the trial records them."""
    if "node" in TRIAL.plan.record:
        _states(module)


def compiler_of_nodes(compiler: Any) -> Any:
    """A backend that compiles the nodes of Dynamo's graph that are on with ``compiler``, and runs the others."""
    if TRIAL.plan.switch("node") is None and TRIAL.plan.switch(OPERATOR_KIND) is None:
        return compiler

    @functools.wraps(compiler)
    def compile_nodes(module: GraphModule, inputs: Any, **kwargs: Any) -> Any:
        states = _states(module)
        if all(states.values()):
            return compiler(module, inputs, **kwargs)
        return aot.compile_runs(functools.partial(compiler, **kwargs), module, states)

    return compile_nodes


def _states(module: GraphModule) -> dict[Node, bool]:
    """Whether each node that computes is on."""
    here = {"compile_id": torch_private.compile_id(), "graph": "dynamo"}
    computing = (node for node in module.graph.nodes if node.op in _COMPUTING)
    return {node: _node_on(node, here) and not runs_uncompiled(node) for node in computing}


def _node_on(node: Node, here: dict[str, Any]) -> bool:
    describe = lambda: {  # noqa: E731
        "name": node.name,
        "target": torch_private.target_name(node),
        "lines": torch_private.user_lines([node]),
        **here,
    }
    return TRIAL.is_on("node", f"{here['compile_id']}/dynamo/{node.name}", describe)
