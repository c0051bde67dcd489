"""Calls of user-defined Triton kernels in a graph, as functions that can be traced, reduced and written as source.

Dynamo represents such a call by an operation that points into tables of this process. Dynamo cannot trace that again,
and no file can hold it. Here the call becomes a plain function that holds the kernel; its positional arguments are the
grid, its keyword arguments the kernel's arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from minifier.tensors import storage_key, tensors_in
from minifier.torch_private import kernel_launch


def launch_function(kernel: Any, writes: frozenset[str]) -> Callable[..., None]:
    """A function that launches a kernel: positional arguments are the grid, keyword arguments the kernel's.

    ``writes`` names the arguments that the kernel writes to.
    """

    def launch(*grid: Any, **arguments: Any) -> None:
        kernel[grid](**arguments)

    launch.__name__ = launch.__qualname__ = f"launch_{kernel_name(kernel)}"
    launch.kernel, launch.writes = kernel, writes  # type: ignore[attr-defined]  # a function may have attributes
    return launch


def launched_kernel(node: fx.Node) -> Any | None:
    """The Triton kernel that a node launches, or None."""
    return getattr(node.target, "kernel", None) if node.op == "call_function" else None


def kernel_name(kernel: Any) -> str:
    """The name of the kernel's Python function, also if an autotuner wraps it."""
    while not hasattr(kernel, "__name__"):
        kernel = kernel.fn
    return str(kernel.__name__)


def written_storages(node: fx.Node, arguments: dict[str, Any]) -> frozenset[int]:
    """The keys of the storages that a launch writes to. A launch does not change the version counter of a tensor.

    ``arguments`` are the values of its keyword arguments.
    """
    names = getattr(node.target, "writes", ()) if launched_kernel(node) is not None else ()
    keys = (storage_key(tensor) for name in names for tensor in tensors_in(arguments[name]))
    return frozenset(key for key in keys if key is not None)


def replace_kernel_calls(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with each of Dynamo's kernel calls replaced by a launch function. Unchanged if it has none."""
    found = [(node, call) for node in module.graph.nodes if (call := kernel_launch(node)) is not None]
    if not found:
        return module
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(module.graph, copies))
    launches: dict[tuple[int, frozenset[str]], Callable[..., None]] = {}
    for node, call in found:
        key = (id(call.kernel), call.writes)
        copy = copies[node]
        copy.target = launches.setdefault(key, launch_function(call.kernel, call.writes))
        own = lambda value: fx.map_arg(value, lambda inner: copies[inner])  # noqa: E731
        copy.args, copy.kwargs = own(call.grid), own(call.arguments)
    changed = fx.GraphModule(module, graph)
    changed.meta = dict(module.meta)
    return changed
