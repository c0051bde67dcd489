"""torch's private names around kernels that Inductor generates, compiles and calls in a trial's process.

Read in torch 2.11.0, 2.13.0 and 2.15.0.
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

intermediate_hook = hooks.intermediate_hook
_LABEL = "<node>"
_BUFFER = re.compile(r"\bbuf\d+\b")
Label = Callable[[Node, "KernelNodes", str | None], str]


@dataclass(frozen=True, slots=True)
class KernelNodes:
    """The nodes that a kernel computes: their names, and the names of their source nodes in the captured graph."""

    names: tuple[str, ...]
    captured_names: tuple[str, ...]

    @classmethod
    def from_nodes(cls, nodes: Sequence[Node]) -> KernelNodes:
        """Make it from these nodes of the lowered graph."""
        captured = dict.fromkeys(name for node in nodes for name in labelled_names(node))
        return cls(tuple(dict.fromkeys(node.name for node in nodes)), tuple(captured))


NO_NODES = KernelNodes((), ())  # unknown nodes: a template kernel, or several kernels combined in one
_nodes_by_kernel: dict[str, KernelNodes] = {}  # by kernel name; the last kernel of a name counts


def wrap_kernel_call(
    is_active: Callable[[], bool],
    begun: Callable[[KernelNodes], str] | None,
    label: Label,
) -> None:
    """Make generated modules call the intermediate hooks before and after each kernel.

    Before the kernel: with the result of ``begun(computed)`` and None. After it, for each buffer with the value of an
    FX node: with the result of ``label(node, computed, kernel)`` and the buffer. At last: with "" and None.
    ``computed`` are the nodes that the kernel that stores the buffer computes; ``kernel`` is None where this one only
    reads it. Without ``begun`` only the buffers are reported. Nothing is done when ``is_active()`` is false.
    """
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    inner = PythonWrapperCodegen.generate_kernel_call

    @functools.wraps(inner)
    def generate_kernel_call(self: Any, kernel_name: str, call_args: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_active():
            return inner(self, kernel_name, call_args, *args, **kwargs)
        if begun is not None:
            begins = begun(_nodes_by_kernel.get(kernel_name, NO_NODES))
            self.writeline(f"run_intermediate_hooks({begins!r}, None)")
        result = inner(self, kernel_name, call_args, *args, **kwargs)
        own = _nodes_by_kernel.get(kernel_name, NO_NODES).names
        for name in call_args:
            node = _node_of_buffer(name)
            if node is not None:
                computed = _nodes_of_kernel_writing(node, name)
                is_stored = not own or set(computed.names) <= set(own)
                text = label(node, computed, kernel_name if is_stored else None)
                self.writeline(f"run_intermediate_hooks({text!r}, {name})")
        if begun is not None:
            self.writeline("run_intermediate_hooks('', None)")
        return result

    PythonWrapperCodegen.generate_kernel_call = generate_kernel_call
    CppScheduling.define_kernel = _remember_nodes(is_active, CppScheduling.define_kernel)
    TritonScheduling.define_kernel = _remember_nodes(is_active, TritonScheduling.define_kernel)


def wrap_library_call(is_active: Callable[[], bool], label: Label) -> None:
    """Make generated modules call the intermediate hooks after each call of a library, such as a matrix product.

    The hooks get the result of ``label(node, computed, function)`` and the buffer: first for those that it reads, with
    None as the function, then for its result. The function is named as the recording names it: "mm",
    "aten.sort.default". Nothing is done when ``is_active()`` is false.
    """
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    into, made = (
        PythonWrapperCodegen._generate_extern_kernel_out_helper,
        PythonWrapperCodegen._generate_extern_kernel_alloc_helper,
    )

    def report(wrapper: Any, function: str, name: str, read: Sequence[str]) -> None:
        if not is_active() or not wrapper.supports_intermediate_hooks:
            return
        called = function.removeprefix("extern_kernels.").removeprefix("torch.ops.")
        buffers = dict.fromkeys(_BUFFER.findall(" ".join(map(str, read))))
        for buffer, by in (*((each, None) for each in buffers if each != name), (name, called)):
            if (node := _node_of_buffer(buffer)) is not None:
                text = label(node, KernelNodes.from_nodes([node]), by)
                wrapper.writeline(f"run_intermediate_hooks({text!r}, {buffer})")

    @functools.wraps(into)
    def generate_out(self: Any, kernel: str, out: str, view: Any, read: list[str], *args: Any, **kwargs: Any) -> Any:
        given = tuple(read)  # torch adds the result to the list
        result = into(self, kernel, out, view, read, *args, **kwargs)
        report(self, kernel, out, given)
        return result

    @functools.wraps(made)
    def generate_alloc(self: Any, extern_kernel: Any, read: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        result = made(self, extern_kernel, read, *args, **kwargs)
        report(self, str(extern_kernel.get_kernel_name()), extern_kernel.get_name(), read)
        return result

    PythonWrapperCodegen._generate_extern_kernel_out_helper = generate_out
    PythonWrapperCodegen._generate_extern_kernel_alloc_helper = generate_alloc


def _remember_nodes(is_active: Callable[[], bool], inner: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(inner)
    def define_kernel(self: Any, source: Any, nodes: Sequence[Any], *args: Any) -> str:
        name = inner(self, source, nodes, *args)
        if is_active():
            parts = (part for part in nodes if hasattr(part, "get_nodes"))
            _nodes_by_kernel[name] = KernelNodes.from_nodes([node for part in parts for node in origin_nodes(part)])
        return name

    return define_kernel


def wrap_kernel_failure(is_active: Callable[[], bool], failed: Callable[[KernelNodes], None]) -> None:
    """Call ``failed(computed)`` when the C++ compiler or Triton rejects a kernel. It needs `wrap_kernel_call`.

    ``is_active()`` must be true at that time and when the kernel was generated.
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


def wrap_kernel_compile(begun: Callable[[], None]) -> None:
    """Call ``begun()`` before the source of a kernel is given to the C++ compiler or to Triton."""
    from torch._inductor.async_compile import AsyncCompile

    def noted(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def compile_kernel(*args: Any, **kwargs: Any) -> Any:
            begun()
            return inner(*args, **kwargs)

        return compile_kernel

    AsyncCompile.cpp_pybinding = noted(AsyncCompile.cpp_pybinding)
    AsyncCompile.triton = noted(AsyncCompile.triton)


def _node_of_buffer(name: Any) -> Node | None:
    """The FX node whose value a buffer holds.

    None for a buffer that a later operation writes to, as a scatter does, for one that is written to its target, and
    for one that no kernel stores, since only the kernel that computes it reads it.
    """
    from torch._inductor.virtualized import V

    buffer = V.graph.try_get_buffer(name) if isinstance(name, str) else None
    node = getattr(buffer, "get_origin_node", lambda: None)()
    if not isinstance(node, Node) or name in V.graph.removed_buffers or name in V.graph.inplaced_to_remove:
        return None
    for output in (output for operation in V.graph.scheduler.nodes for output in operation.get_outputs()):
        if (output.get_name() == name and output.get_mutations()) or name in output.get_mutations():
            return None
    return node


def _nodes_of_kernel_writing(node: Node, name: str) -> KernelNodes:
    """The nodes of the kernel that writes a buffer, in graph order."""
    from torch._inductor.virtualized import V

    scheduler = V.graph.scheduler
    buffer = scheduler.name_to_buf.get(name)
    operation = buffer.defining_op if buffer is not None else None
    nodes = origin_nodes(scheduler.name_to_fused_node[operation.get_name()]) if operation is not None else []
    return KernelNodes.from_nodes(nodes or [node])


def label_nodes(graph: GraphModule) -> None:
    """Label each node of a graph, so that later nodes show which of them they came from (`labelled_names`)."""
    for node in graph.graph.nodes:
        node.meta["stack_trace"] = f'  File "{_LABEL}", line 1, in {node.name}\n'


def labelled_names(node: Any) -> list[str]:
    """Return the nodes of a graph labelled by `label_nodes` that a later node came from.

    Call it while the later node's graph is being compiled. torch drops the data afterwards.
    """
    return list(re.findall(rf'File "{_LABEL}", line 1, in (\w+)', node.stack_trace or ""))


def current_lowered_graph() -> GraphModule:
    """Return the graph that Inductor is generating code for, after all passes."""
    from torch._inductor.virtualized import V

    found = V.graph.module
    assert isinstance(found, GraphModule)
    return found


def uses_inductor_random(graph: GraphModule) -> bool:
    """Whether the kernels draw other random numbers than eager does."""
    return any("inductor_random" in str(node.target) for node in graph.graph.nodes)


def can_read_tensors() -> bool:
    """Whether tensors can be read back now. False while a CUDA graph is being captured."""
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
