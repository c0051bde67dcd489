"""The private names of torch behind kernels as Inductor writes, compiles and calls them, in a trial's process.

Read in 2.11.0, 2.13.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import hooks
from torch.fx import GraphModule, Node

from dynadiag.torch_private.bisect import origin_nodes

__all__ = [
    "NO_NODES",
    "KernelNodes",
    "can_read_tensors",
    "current_lowered_graph",
    "intermediate_hook",
    "label_nodes",
    "labelled_names",
    "uses_inductor_random",
    "wrap_kernel_call",
    "wrap_kernel_failure",
]

intermediate_hook = hooks.intermediate_hook
_LABEL = "<node>"


@dataclass(frozen=True, slots=True)
class KernelNodes:
    """What a kernel computes: the names of the nodes, and of those in the captured graph that they came from."""

    names: tuple[str, ...]
    captured_names: tuple[str, ...]

    @classmethod
    def from_nodes(cls, nodes: Sequence[Node]) -> KernelNodes:
        captured = dict.fromkeys(name for node in nodes for name in labelled_names(node))
        return cls(tuple(dict.fromkeys(node.name for node in nodes)), tuple(captured))


NO_NODES = KernelNodes((), ())  # that is known of: by a kernel of a template, or of several in one
_nodes_by_kernel: dict[str, KernelNodes] = {}  # by the name of the kernel; a name stands for what was written last


def wrap_kernel_call(
    is_active: Callable[[], bool], begun: Callable[[KernelNodes], str], label: Callable[[Node, KernelNodes], str]
) -> None:
    """Have generated modules call the intermediate hooks before and after each kernel.

    Before it with what ``begun(computed)`` returns and None; once it has run, with what ``label(node, computed)``
    returns and the buffer, for each buffer that holds the value of an FX node; at last with "" and None. ``computed``
    is what the kernel computes. Where ``is_active()`` is false nothing is done.
    """
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    inner = PythonWrapperCodegen.generate_kernel_call

    @functools.wraps(inner)
    def generate_kernel_call(self: Any, kernel_name: str, call_args: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_active():
            return inner(self, kernel_name, call_args, *args, **kwargs)
        begins = begun(_nodes_by_kernel.get(kernel_name, NO_NODES))
        self.writeline(f"run_intermediate_hooks({begins!r}, None)")
        result = inner(self, kernel_name, call_args, *args, **kwargs)
        for name in call_args:
            node = _node_of_buffer(name)
            if node is not None:
                text = label(node, _nodes_of_kernel_writing(node, name))
                self.writeline(f"run_intermediate_hooks({text!r}, {name})")
        self.writeline("run_intermediate_hooks('', None)")
        return result

    PythonWrapperCodegen.generate_kernel_call = generate_kernel_call
    CppScheduling.define_kernel = _remember_nodes(is_active, CppScheduling.define_kernel)
    TritonScheduling.define_kernel = _remember_nodes(is_active, TritonScheduling.define_kernel)


def _remember_nodes(asked: Callable[[], bool], inner: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(inner)
    def define_kernel(self: Any, source: Any, nodes: Sequence[Any], *args: Any) -> str:
        name = inner(self, source, nodes, *args)
        if asked():
            parts = (part for part in nodes if hasattr(part, "get_nodes"))
            _nodes_by_kernel[name] = KernelNodes.from_nodes([node for part in parts for node in origin_nodes(part)])
        return name

    return define_kernel


def wrap_kernel_failure(is_active: Callable[[], bool], failed: Callable[[KernelNodes], None]) -> None:
    """Have ``failed(computed)`` called where the C++ compiler or Triton did not take a kernel.

    Only where ``is_active()`` is true, then and when the kernel was written. Goes with `wrap_kernel_call`.
    """
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    bodies: dict[str, str] = {}

    def written(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def define_kernel(self: Any, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> Any:
            bodies[kernel_name] = kernel_body
            return inner(self, kernel_name, kernel_body, *args, **kwargs)

        return define_kernel

    def compiled(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def compile_kernel(self: Any, first: Any, source: str, *args: Any, **kwargs: Any) -> Any:
            try:
                return inner(self, first, source, *args, **kwargs)
            except Exception:
                known = [name for name, body in bodies.items() if source.strip() in body and name in _nodes_by_kernel]
                for name in known if is_active() else ():
                    failed(_nodes_by_kernel[name])
                raise

        return compile_kernel

    PythonWrapperCodegen.define_kernel = written(PythonWrapperCodegen.define_kernel)
    AsyncCompile.cpp_pybinding = compiled(AsyncCompile.cpp_pybinding)
    AsyncCompile.triton = compiled(AsyncCompile.triton)


def _node_of_buffer(name: Any) -> Node | None:
    """The FX node whose value a buffer holds."""
    from torch._inductor.virtualized import V

    buffer = V.graph.try_get_buffer(name) if isinstance(name, str) else None
    node = getattr(buffer, "get_origin_node", lambda: None)()
    return node if isinstance(node, Node) else None


def _nodes_of_kernel_writing(node: Node, name: str) -> KernelNodes:
    """What the kernel computes that makes a buffer, in the order of their graph."""
    from torch._inductor.virtualized import V

    scheduler = V.graph.scheduler
    buffer = scheduler.name_to_buf.get(name)
    operation = buffer.defining_op if buffer is not None else None
    nodes = origin_nodes(scheduler.name_to_fused_node[operation.get_name()]) if operation is not None else []
    return KernelNodes.from_nodes(nodes or [node])


def label_nodes(graph: GraphModule) -> None:
    """Have each node bear its own name where later nodes say what line they came from (`labelled_names`)."""
    for node in graph.graph.nodes:
        node.meta["stack_trace"] = f'  File "{_LABEL}", line 1, in {node.name}\n'


def labelled_names(node: Any) -> list[str]:
    """The nodes of a graph seen by `label_nodes` that a later node came from.

    To be asked while the later node's graph is compiled: when that is done, torch forgets where it came from.
    """
    return list(re.findall(rf'File "{_LABEL}", line 1, in (\w+)', node.stack_trace or ""))


def current_lowered_graph() -> GraphModule:
    """The graph that is being written as kernels, after all passes over it."""
    from torch._inductor.virtualized import V

    found = V.graph.module
    assert isinstance(found, GraphModule)
    return found


def uses_inductor_random(graph: GraphModule) -> bool:
    """Whether the kernels draw random numbers that eager does not."""
    return any("inductor_random" in str(node.target) for node in graph.graph.nodes)


def can_read_tensors() -> bool:
    """False while a CUDA graph is being recorded: nothing may be read back then."""
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
