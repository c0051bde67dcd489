"""torch's private names around calls of compiled graphs, for the recorder's ``--values``. Read in torch 2.13.0."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
from torch._guards import CompileContext, TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from dynadiag.recording.torch_text.operators import is_torch_namespace
from dynadiag.torch_private.minify import custom_op_definition
from dynadiag.torch_private.trial import caches_bypassed

_AUTOCAST_DEVICES = ("cpu", "cuda")
_COMPILED_BACKWARD = "CompiledFunctionBackward"  # autograd's node of AOTAutograd's `CompiledFunction`
_HOOK_REGISTRATIONS = ("register_hook", "_register_hook_trampoline")  # the latter with compiled autograd
_CAST = torch.ops.prims.convert_element_type.default
_VIEWS = (  # that keep the elements in their order, if they keep their number
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.reshape.default,
    torch.ops.aten.expand.default,
    torch.ops.aten.unsqueeze.default,
    torch.ops.aten.squeeze.dim,
    torch.ops.aten.squeeze.dims,
)


@contextlib.contextmanager
def hooks_removed_after() -> Iterator[None]:
    """Put the functions of torch back that the block wraps to compile with hooks. The caches are off in it."""
    from torch._dynamo.output_graph import OutputGraph
    from torch._inductor import compile_fx
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    wrapped: list[tuple[Any, str]] = [
        (OutputGraph, "call_user_compiler"),
        (compile_fx, "_compile_fx_inner"),
        (PythonWrapperCodegen, "generate_kernel_call"),
        (PythonWrapperCodegen, "_generate_extern_kernel_out_helper"),
        (PythonWrapperCodegen, "_generate_extern_kernel_alloc_helper"),
        (CppScheduling, "define_kernel"),
        (TritonScheduling, "define_kernel"),
    ]
    originals = [(owner, name, vars(owner).get(name)) for owner, name in wrapped]
    try:
        with caches_bypassed():
            yield
    finally:
        for owner, name, original in originals:
            if original is None:
                delattr(owner, name)  # it was inherited
            else:
                setattr(owner, name, original)


def operators_with_own_backward(module: GraphModule) -> list[str]:
    """The operators of `torch.library.custom_op` in a graph whose backward the program has registered, by name."""
    names = dict.fromkeys(getattr(getattr(node.target, "_schema", None), "name", "") for node in module.graph.nodes)
    return [name for name in names if getattr(custom_op_definition(name), "_backward_fn", None) is not None]


def program_operators(module: GraphModule) -> list[Node]:
    """The nodes of a graph that call code of the program: custom operators, and functions that Dynamo is to keep."""
    return [node for node in module.graph.nodes if node.op == "call_function" and _is_of_program(node.target)]


def is_custom_operator(target: Any) -> bool:
    """Whether what a node calls is an operator that torch does not define."""
    packet = getattr(target, "overloadpacket", target)
    name = packet._qualified_op_name if isinstance(packet, torch._ops.OpOverloadPacket) else ""
    return bool(name) and not is_torch_namespace(name.partition("::")[0])


def _is_of_program(target: Any) -> bool:
    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return is_custom_operator(target)
    place = getattr(target, "__module__", None) or "builtins"  # methods of C have none
    return place.partition(".")[0] not in ("torch", "builtins", "_operator", "operator", "math", "functools")


def replace_call(compiled: Any, wrap: Callable[[Callable[[list[Any]], Any]], Callable[[list[Any]], Any]]) -> None:
    """Replace what a graph that Inductor compiled (``CompiledFxGraph``) calls by ``wrap`` of it.

    It takes its arguments as one list, which it empties.
    """
    inner = getattr(compiled, "current_callable", None)
    if inner is None:
        return
    outer = wrap(inner)
    outer._boxed_call = True  # type: ignore[attr-defined]
    compiled.current_callable = outer


def input_history(inputs: Any) -> set[Any]:
    """Return the nodes of autograd's graph that computed these inputs."""
    return {each.grad_fn for each in inputs if isinstance(each, torch.Tensor) and each.grad_fn is not None}


def compiled_backward(outputs: Any, before: set[Any]) -> Any:
    """Return the node of autograd's graph that will call the backward graph of a compiled call.

    ``outputs`` are what the call returned, ``before`` is the `input_history`. None if there is no such node, or
    several: a graph may be compiled in parts.
    """
    found, seen = set[Any](), set(before)
    waiting = [each.grad_fn for each in pytree.tree_leaves(outputs) if isinstance(each, torch.Tensor)]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == _COMPILED_BACKWARD:
            found.add(node)
        waiting += [source for source, _ in node.next_functions]
    return found.pop() if len(found) == 1 else None


def current_backward() -> Any:
    """Return the node of autograd's graph whose gradients are computed now in this thread, None if there is none."""
    return torch._C._current_autograd_node()


def is_tracing(arguments: Any) -> bool:
    """Whether a call is part of tracing: it has no values. `is_compiling` is true in all threads if one compiles."""
    is_here = CompileContext.try_get() is not None or TracingContext.try_get() is not None
    is_compiled = torch.compiler.is_compiling() and is_here
    return is_compiled or any(isinstance(each, FakeTensor) for each in pytree.tree_leaves(arguments))


def can_compile() -> bool:
    """Whether Dynamo's lock is free: in a fork, that of a thread that the fork has not is never released."""
    from torch._dynamo.convert_frame import compile_lock

    is_free = compile_lock.acquire(blocking=False)
    if is_free:
        compile_lock.release()
    return is_free


def is_functorch_wrapper(value: torch.Tensor) -> bool:
    """Whether a tensor stands for one inside ``torch.func.vmap`` or ``grad``: it has no memory of its own."""
    return torch._C._functorch.is_functorch_wrapped_tensor(value)


def is_hook_registration(target: Any) -> bool:
    """Whether a function of Dynamo's graph registers a hook on a tensor, which it returns."""
    return getattr(target, "__name__", "") in _HOOK_REGISTRATIONS


def has_collective(module: GraphModule) -> bool:
    """Whether a graph communicates with other processes."""
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            place = getattr(node.target, "__module__", None) or ""
            if "c10d" in str(node.target) or place.startswith("torch.distributed"):
                return True
    return False


def is_lowering_subgraph() -> bool:
    """Whether Inductor lowers a graph of a higher-order operator now, such as the body of ``while_loop``."""
    from torch._inductor.graph import SubgraphLowering
    from torch._inductor.virtualized import V

    return isinstance(V.graph, SubgraphLowering)


def final_source(node: Node) -> tuple[str | None, bool]:
    """Return the node of Dynamo's graph that has the elements of a node of the lowered forward graph, and whether that
    is still to be cast or reshaped.

    A node of Dynamo's becomes several. The last has its value: no node of the same origin reads it. ``from_node`` names
    the origin. None if it has none, as nodes that only the backward needs.
    """
    while node.target in _VIEWS and _count(node) == _count(node.all_input_nodes[0]):
        node = node.all_input_nodes[0]  # Inductor stores a value where it is first viewed
    source = _source(node)
    return (source if _keeps(node, source) else None), bool(_of_source(node, source))


def backward_source(node: Node, names: Container[str]) -> str | None:
    """Return the node of AOTAutograd's backward graph, whose nodes have these names, that has the elements of a node of
    the lowered graph. None if there is none.

    A pass may put a node behind another, for all that read it: they have the same origin.
    """
    while node.name not in names:
        behind = [read for read in node.all_input_nodes if len(read.users) == 1 and _have_same_origin(read, node)]
        if len(behind) != 1:
            return None
        node = behind[0]
    return node.name


def _have_same_origin(node: Node, other: Node) -> bool:
    origins = ((each.stack_trace, each.meta.get("original_aten"), each.meta.get("seq_nr")) for each in (node, other))
    return _count(node) == _count(other) is not None and len(set(origins)) == 1


def _of_source(node: Node, source: str | None) -> list[Node]:
    """The nodes of an origin that read a node."""
    return [user for user in node.users if source is not None and _source(user) == source]


def _keeps(node: Node, source: str | None) -> bool:
    """Whether what is computed of a node for its origin has its elements."""
    return all(
        user.target in (*_VIEWS, _CAST) and _count(user) == _count(node) and _keeps(user, source)
        for user in _of_source(node, source)
    )


def _count(node: Node) -> Any:
    """How many elements a node's tensor has, None if it is none."""
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) else None


def _source(node: Node) -> str | None:
    names = [found.name for found in node.meta.get("from_node") or ()]
    return names[0] if len(names) == 1 and isinstance(names[0], str) else None


class ThreadState:
    """What a thread of torch's knows by itself: whether gradients are on, and autocast."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = [
            (device, torch.get_autocast_dtype(device))
            for device in _AUTOCAST_DEVICES
            if torch.is_autocast_enabled(device)
        ]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """The same state in the thread that enters the context."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self._inference))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            for device, dtype in self._autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype))
            yield
