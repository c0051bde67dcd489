"""Calls of the user's own Triton kernels in a graph, as something that can be traced, taken apart and written down.

Dynamo keeps such a call as an operation that points into tables of this process: it cannot trace that again, and no
file can hold it. Here the call becomes a plain function with the kernel in it, the grid as its arguments and the
kernel's arguments by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from minifier.tensors import storage_key, tensors_in
from minifier.torch_private import kernel_launch

__all__ = ["kernel_name", "kernel_of", "launch_of", "with_launches", "written_by"]


def launch_of(kernel: Any, writes: frozenset[str]) -> Callable[..., None]:
    """The function that launches a kernel: the grid, then the arguments by name. ``writes`` are those it writes to."""

    def launch(*grid: Any, **arguments: Any) -> None:
        kernel[grid](**arguments)

    launch.__name__ = launch.__qualname__ = f"launch_{kernel_name(kernel)}"
    launch.kernel, launch.writes = kernel, writes  # type: ignore[attr-defined]  # a function may have attributes
    return launch


def kernel_of(node: fx.Node) -> Any | None:
    """The Triton kernel that a node launches, or None."""
    return getattr(node.target, "kernel", None) if node.op == "call_function" else None


def kernel_name(kernel: Any) -> str:
    """The name of the function that it was made of: an autotuner has none of its own."""
    while not hasattr(kernel, "__name__"):
        kernel = kernel.fn
    return str(kernel.__name__)


def written_by(node: fx.Node, arguments: dict[str, Any]) -> frozenset[int]:
    """The storages that a launch writes to; it leaves no other trace on a tensor. ``arguments`` are its values."""
    names = getattr(node.target, "writes", ()) if kernel_of(node) is not None else ()
    keys = (storage_key(tensor) for name in names for tensor in tensors_in(arguments[name]))
    return frozenset(key for key in keys if key is not None)


def with_launches(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph with each of Dynamo's calls of a kernel as a launch; itself where it has none."""
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
        copy.target = launches.setdefault(key, launch_of(call.kernel, call.writes))
        own = lambda value: fx.map_arg(value, lambda inner: copies[inner])  # noqa: E731
        copy.args, copy.kwargs = own(call.grid), own(call.arguments)
    changed = fx.GraphModule(module, graph)
    changed.meta = dict(module.meta)
    return changed
