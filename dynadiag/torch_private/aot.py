"""torch's private names of AOTAutograd that bisection uses. Read in torch 2.11.0, 2.13.0, 2.14.1 and 2.15.0.

All of this runs in a trial's process, which is ours and ends with the trial.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import torch
from torch._C import DispatchKey
from torch._functorch import partitioners
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

_COMPOSITE_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


def min_cut_partition() -> Any:
    """Return the partitioner that chooses what the backward computes again."""
    return partitioners.min_cut_rematerialization_partition


def save_all_partition(joint: GraphModule, inputs: Any, **kwargs: Any) -> tuple[GraphModule, GraphModule]:
    """Split a joint graph with the partitioner that saves all that the backward reads."""
    known = inspect.signature(partitioners.default_partition).parameters
    named = {name: value for name, value in kwargs.items() if name in known}
    return partitioners.default_partition(joint, inputs, **named)


def is_cse_on() -> bool:
    """Whether the partitioner removes common subexpressions."""
    return bool(partitioners.config.cse)


def cse() -> Callable[..., Any]:
    """Return the function that removes common subexpressions for the partitioner: torch's, or the program's own."""
    return partitioners.fx_graph_cse


def cse_replaced(function: Callable[..., Any]) -> Any:
    """Return a context in which ``function(graph)`` removes common subexpressions for the partitioner. From torch 2.15
    on it has options, too.
    """
    return mock.patch.object(partitioners, "fx_graph_cse", function)


def wrap_python_kernels(hook: Callable[[OpOverload], bool]) -> None:
    """Where ``hook(operator)`` is true, use an operator's kernel in Python, which only tracing sees. Where it is false,
    use the kernel that eager uses.

    `torch._decomp` registers these for composite operators, such as `aten.upsample_bilinear2d.vec`.
    """
    inner = OpOverload._get_dispatch

    def get_dispatch(self: Any, key: Any) -> Any:
        kernel = inner(self, key)
        composite = any(self.py_kernels.get(alias) is kernel for alias in _COMPOSITE_KEYS)
        own = _key_of_own_kernel(self, key) if composite else None
        if own is None:
            return kernel

        def choose(*args: Any, **kwargs: Any) -> Any:
            return kernel(*args, **kwargs) if hook(self) else self._op_dk(own, *args, **kwargs)

        if key in self._dispatch_cache:
            self._dispatch_cache[key] = choose
        return choose

    OpOverload._get_dispatch = get_dispatch


def _key_of_own_kernel(operator: OpOverload, key: Any) -> Any:
    """Return the key of the kernel that is not in Python: a composite one, else what eager calls at ``key``."""
    name = operator.name()
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE_KEYS[0]):
        return _COMPOSITE_KEYS[0]
    return key if torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key.name) else None


def wrap_aot_module(hook: Callable[[GraphModule], bool]) -> None:
    """Have AOTAutograd trace a graph of Dynamo's without functionalization where ``hook(graph)`` is false."""
    from torch._dynamo.backends import common

    inner = common.aot_module_simplified
    if "disable_functionalization" not in inspect.signature(inner).parameters:
        return

    @functools.wraps(inner)
    def aot_module_simplified(module: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(module, GraphModule) and not hook(module):
            kwargs["disable_functionalization"] = True
        return inner(module, *args, **kwargs)

    common.aot_module_simplified = aot_module_simplified


def compile_runs(compiler: Callable[..., Any], module: GraphModule, states: Mapping[Node, bool]) -> Callable[..., Any]:
    """Compile each run of consecutive nodes that are on by itself with ``compiler``; nodes that are off run uncompiled.

    ``states`` has the nodes of a graph of Dynamo's that compute.
    """
    runs: dict[Node, int] = {}
    compiled: dict[str, bool] = {}
    for node, on in states.items():
        if not compiled or compiled[f"submod_{len(compiled) - 1}"] != on:
            compiled[f"submod_{len(compiled)}"] = on
        runs[node] = len(compiled) - 1
    split = split_module(module, None, lambda node: runs[node], keep_original_order=True)
    for name, part in list(split.named_children()):
        if compiled.get(name):
            _replace_by_compiled(split, name, part, compiler)
    return split.forward


def _replace_by_compiled(split: Any, name: str, part: Any, compiler: Callable[..., Any]) -> None:
    (output,) = part.graph.find_nodes(op="output")
    single = not isinstance(output.args[0], tuple)
    if single:  # a compiler takes graphs that return tuples
        output.args = ((output.args[0],),)
        part.recompile()
    inputs = [node.meta["example_value"] for node in part.graph.find_nodes(op="placeholder")]
    call = compiler(part, inputs)

    def run(*args: Any) -> Any:
        result = call(*args)
        return result[0] if single else result

    delattr(split, name)
    setattr(split, name, _Compiled(run))


class _Compiled(torch.nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call

    def forward(self, *args: Any) -> Any:
        return self._call(*args)
