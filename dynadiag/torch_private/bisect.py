"""torch's private names that bisection uses. Read in torch 2.11.0, 2.13.0 and 2.15.0.

All of this runs in a trial's process, which is ours and ends with the trial.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._dynamo import convert_frame
from torch._dynamo.types import ConvertFrameReturn
from torch.fx import Node
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

from dynadiag.torch_private.capture import current_compile_id, unwrapped_backend
from dynadiag.torch_private.fake_kernels import traced_user_line
from dynadiag.torch_private.trial import lookup_backend

_TORCH = torch.__file__.removesuffix("__init__.py")
_STACK_ENTRY = re.compile(r'File "([^"]+)", line (\d+)')
_graph_kinds: list[str] = []  # kinds of the AOTAutograd graphs that are being compiled; a stack, because compiles nest


def compile_id() -> str:
    """Return torch's text of the running compile: ``0/1``, or ``-`` outside any."""
    return current_compile_id() or "-"


def graph_kind() -> str | None:
    """Return the kind of the graph that is being compiled: "forward", "backward" or "inference".

    None outside a compile.
    """
    return _graph_kinds[-1] if _graph_kinds else None


@contextlib.contextmanager
def graph_kind_set(kind: str) -> Iterator[None]:
    """Set the kind of graph that is being compiled, for the length of a ``with`` block."""
    _graph_kinds.append(kind)
    try:
        yield
    finally:
        _graph_kinds.pop()


def inner_graph_kind(kwargs: dict[str, Any]) -> str:
    """Return the kind of graph from the keyword arguments of Inductor's inner compile."""
    if kwargs.get("is_backward"):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"


def user_line(node: Node) -> tuple[str, int] | None:
    """Return the innermost line outside torch that a node came from."""
    return _outside_torch(node.stack_trace or "")


def _outside_torch(stack: str) -> tuple[str, int] | None:
    entries = [(file, int(line)) for file, line in _STACK_ENTRY.findall(stack)]
    outside = [entry for entry in entries if not entry[0].startswith(_TORCH)]
    return outside[-1] if outside else None


def user_lines(nodes: Iterable[Node]) -> list[tuple[str, int]]:
    """Return the innermost lines outside torch that these nodes came from, each once."""
    lines = (user_line(node) for node in nodes)
    return list(dict.fromkeys(line for line in lines if line is not None))


def traced_user_lines() -> list[tuple[str, int]]:
    """Return the user's line of the node that AOTAutograd or Dynamo is tracing, in a list. Empty if unknown."""
    stack = str(torch.fx.traceback.get_current_meta().get("stack_trace") or "")
    line = _outside_torch(stack) or traced_user_line()
    return [line] if line else []


def copied_arguments(node: Node) -> str:
    """Return as text which arguments of a functionalized operator are copied before it writes to them.

    Inductor's pass ``reinplace_inplaceable_ops`` decides that, and notes it nowhere else. Empty if it did not.
    """
    return str(node.meta.get("only_clone_these_tensors", ""))


def target_name(node: Node) -> str:
    """Return what a node of Dynamo's graph calls, by name: a function with its module, an operator, a method, or a
    module.
    """
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, torch._ops.OpOverloadPacket | torch._ops.OpOverload):
        return str(getattr(node.target, "default", node.target))
    name = getattr(node.target, "__qualname__", getattr(node.target, "__name__", None))
    return f"{getattr(node.target, '__module__', '')}.{name}".lstrip(".") if name else str(node.target)


def current_node() -> Node | None:
    """Return the FX node that Inductor is lowering, or None."""
    from torch._inductor.virtualized import V

    node = V.current_node
    return node if isinstance(node, Node) else None


def current_subgraph() -> tuple[str, ...]:
    """Return the name of the branch or loop body that is being lowered, in a tuple. Empty for a whole graph."""
    from torch._inductor.virtualized import V

    return (str(V.graph.name),) if hasattr(V.graph, "parent") else ()


def enclosing_nodes() -> Iterator[Node]:
    """Yield the conditionals and loops that contain the node that is being lowered, the innermost first."""
    from torch._inductor.virtualized import V

    graph = getattr(V.graph, "parent", None)
    while graph is not None:
        if isinstance(graph.current_node, Node):
            yield graph.current_node
        graph = getattr(graph, "parent", None)


def operator_name(text: str) -> str:
    """Return ``aten.gelu.default`` from the repr of an operator."""
    found = re.search(r"OpOverload\(op='([^']+)', overload='([^']+)'\)|^([\w.:]+)$", text)
    if found is None:
        return text
    return found[3] or f"{found[1].replace('::', '.')}.{found[2]}" if found[1] or found[3] else text


def describe_pass(name: str, function: Callable[..., Any]) -> tuple[str, list[tuple[str, int]]]:
    """Return the name of a pass and where it is defined.

    A pass of the user's has its qualified name, a pass of torch's the name that torch gives it.
    """
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    if not (inspect.isfunction(target) or inspect.ismethod(target)) and not isinstance(target, type):
        owner: Any = type(target)
        qualified, code = owner.__qualname__, getattr(vars(owner).get("__call__"), "__code__", None)
    else:
        qualified, code = target.__qualname__, getattr(target, "__code__", None)
    if code is None or code.co_filename.startswith(_TORCH):
        return name, []
    return qualified, [(code.co_filename, code.co_firstlineno)]


def pattern_name(entry: Any) -> str:
    """Return the name of a pattern replacement: its handler, or the function that its replacement was traced from."""
    handler = getattr(entry, "handler", None)
    if handler is not None:
        return str(getattr(handler, "__qualname__", type(handler).__name__))
    check = _own_check(entry)
    cells = inspect.getclosurevars(check).nonlocals if inspect.isfunction(check) else {}
    function = cells.get("search_fn") or cells.get("replace_fn")
    return str(getattr(entry, "pattern_name", None) or getattr(function, "__name__", type(entry).__name__))


def origin_nodes(scheduler_node: Any) -> list[Node]:
    """Return the FX nodes that a kernel computes, in graph order."""
    parts = (part.node for part in scheduler_node.get_nodes())
    found = {node for part in parts if part is not None for node in part.get_origins()}
    return sorted(found)


def innermost_function(backend: Any) -> Callable[..., Any] | None:
    """Return the Python function of a backend below torch's wrappers, or None if it is not a function."""
    found = unwrapped_backend(backend)
    while isinstance(found, functools.partial):
        found = found.func
    return found if inspect.isfunction(found) else None


def graph_of(graph: Any) -> Any:
    """Return the graph of a module, or the graph itself."""
    return graph.graph if isinstance(graph, torch.fx.GraphModule) else graph


def copy_of_graph(graph: Any) -> torch.fx.Graph:
    """Return a copy of a graph, with the attributes that Dynamo sets on nodes beside ``meta``.

    A plain copy loses them.
    """
    original = graph_of(graph)
    kept: torch.fx.Graph = copy.deepcopy(original)
    for node, other in zip(original.nodes, kept.nodes, strict=True):
        vars(other).update({name: value for name, value in vars(node).items() if name not in vars(other)})
    return kept


def restore_graph(graph: Any, kept: torch.fx.Graph) -> None:
    """Restore a graph, or that of a module, to the state of an earlier copy."""
    inner = graph_of(graph)
    vars(inner).update({name: value for name, value in vars(kept).items() if name != "_owning_module"})
    for node in inner.nodes:
        node.graph = inner
    if inner is not graph:
        graph.recompile()


def index_among_same_origins(scheduler_node: Any) -> int:
    """Return the index of a kernel among those with the same origins: an operator with two outputs has two."""
    same = [
        other
        for other in scheduler_node.scheduler.name_to_node.values()
        if other.node is not None and set(other.node.get_origins()) == set(scheduler_node.node.get_origins())
    ]
    return same.index(scheduler_node) if scheduler_node in same else 0


def wrap_subsystem(hook: Callable[..., bool]) -> None:
    """Let ``hook(backend, subsystem, debug_info)`` answer wherever torch asks its own `CompilerBisector`."""
    from torch._inductor.compiler_bisector import CompilerBisector

    def disable_subsystem(backend: str, subsystem: str, debug_info: Any = None) -> bool:
        return hook(backend, subsystem, debug_info)

    CompilerBisector.disable_subsystem = staticmethod(disable_subsystem)
    CompilerBisector.bisection_enabled = False  # ignore a bisect_status.txt that an earlier run left
    CompilerBisector.get_backend = staticmethod(lambda: None)


def wrap_observed_pass(hook: Callable[..., Any]) -> None:
    """Call ``hook(inner, ...)`` in place of each pass that torch's `GraphTransformObserver` runs."""
    for name in ("apply_gm_pass", "apply_graph_pass"):
        inner = getattr(GraphTransformObserver, name)
        setattr(GraphTransformObserver, name, _hooked(inner, hook))


def _hooked(inner: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        return hook(inner, *args, **kwargs)

    return call


def wrap_inner_compile(hook: Callable[..., Any]) -> None:
    """Call ``hook(inner, gm, args, kwargs)`` in place of Inductor's compile of one graph."""
    from torch._inductor import compile_fx

    inner = compile_fx._compile_fx_inner

    @functools.wraps(inner)
    def compile_inner(gm: Any, *args: Any, **kwargs: Any) -> Any:
        return hook(inner, gm, args, kwargs)

    compile_fx._compile_fx_inner = compile_inner


def boxed_graph(gm: Any) -> Any:
    """Return the graph as a callable with the boxed calling convention that AOTAutograd expects."""
    from functorch.compile import make_boxed_func

    return make_boxed_func(gm.forward)


def wrap_run_node(hook: Callable[..., Any]) -> None:
    """Call ``hook(inner, graph, node)`` in place of Inductor's lowering of each node."""
    from torch._inductor.graph import GraphLowering

    GraphLowering.run_node = _hooked(GraphLowering.run_node, hook)


def is_inlined(value: Any) -> bool:
    """Whether a lowered value is an expression that its readers compute again, not a buffer."""
    from torch._inductor import ir

    return isinstance(value, ir.TensorBox) and isinstance(getattr(value.data, "data", None), ir.Pointwise)


def store(value: Any) -> None:
    """Write a lowered value to a buffer of its dtype, which its readers read."""
    value.realize()


def abbreviate_nested_kernels() -> None:
    """Make the text of a library kernel name its input kernels instead of printing them in full.

    torch puts the arguments of a failed lowering into the message. Each prints what it was computed from, once per
    path. When all earlier nodes fall back to ATen, that text grows without limit.
    """
    from torch._inductor.ir import ExternKernel

    inner = ExternKernel.__str__
    depth = 0

    def text(self: Any) -> str:
        nonlocal depth
        if depth:
            return f"{type(self).__name__}({self.get_name()})"
        depth += 1
        try:
            return inner(self)
        finally:
            depth -= 1

    ExternKernel.__str__ = ExternKernel.__repr__ = text


def wrap_pattern_check(hook: Callable[..., Any]) -> None:
    """Call ``hook(check, entry, match)`` in place of each check of a pattern, which decides whether it is applied."""
    from torch._inductor.pattern_matcher import PatternEntry

    def wrapped_check(self: Any) -> Callable[..., Any]:
        return functools.partial(hook, _own_check(self), self)

    def set_check(self: Any, check: Callable[..., Any]) -> None:
        vars(self)["extra_check"] = check

    PatternEntry.extra_check = property(wrapped_check, set_check)


def _own_check(entry: Any) -> Any:
    return vars(entry).get("extra_check")


def wrap_fallback(hook: Callable[..., Any]) -> None:
    """Call ``hook(inner, ...)`` in place of each call that lets Inductor leave an operator to ATen."""
    from torch._inductor import graph

    graph.make_fallback = _hooked(graph.make_fallback, hook)


def wrap_can_fuse(hook: Callable[..., bool]) -> None:
    """Call ``hook(torch's answer, first, second)`` to decide whether Inductor may fuse two nodes."""
    from torch._inductor.scheduler import Scheduler

    inner = Scheduler.can_fuse

    @functools.wraps(inner)
    def can_fuse(self: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> bool:
        return hook(inner(self, first, second, *args, **kwargs), first, second)

    Scheduler.can_fuse = can_fuse


def wrap_cpp_kernel(is_enabled: Callable[..., bool]) -> None:
    """Generate C++ kernels without vectorization when ``on(scheduler nodes)`` is false."""
    from torch._inductor.codegen import cpp

    codegen_nodes = cpp.CppKernelProxy.codegen_nodes
    select_tiling = cpp.TilingSelect.select_tiling
    scalar: list[bool] = []

    @functools.wraps(codegen_nodes)
    def codegen(self: Any, nodes: Any, *args: Any, **kwargs: Any) -> Any:
        scalar.append(not is_enabled(nodes))
        try:
            return codegen_nodes(self, nodes, *args, **kwargs)
        finally:
            scalar.pop()

    @functools.wraps(select_tiling)
    def select(*args: Any, **kwargs: Any) -> Any:
        chosen = select_tiling(*args, **kwargs)
        return ([], [], *chosen[2:]) if scalar and scalar[-1] else chosen

    cpp.CppKernelProxy.codegen_nodes = codegen
    cpp.TilingSelect.select_tiling = select


def call_with_backend(inner: Callable[..., Any], output_graph: Any, backend: str, *args: Any, **kwargs: Any) -> Any:
    """Call `inner` with another backend, named `backend`, in Dynamo's output graph."""
    own = output_graph.compiler_fn
    output_graph.compiler_fn = lookup_backend(backend)
    try:
        return inner(output_graph, *args, **kwargs)
    finally:
        output_graph.compiler_fn = own


_WRAPPER = "wrap_inline.<locals>.inner"


def wrap_frame(is_enabled: Callable[..., bool]) -> None:
    """Make Dynamo skip each frame whose code ``is_enabled`` rejects. The code of a callable object, a partial or a
    module of torch's is its own, although Dynamo compiles ``inner`` of ``wrap_inline`` (external_utils.py) for it.
    """
    inner = convert_frame.CatchErrorsWrapper.__call__

    @functools.wraps(inner)
    def call(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        wraps = frame.f_code.co_qualname == _WRAPPER
        code = code_of(frame.closure[0].cell_contents) if wraps else None
        if is_enabled(code or frame.f_code):
            return inner(self, frame, *args, **kwargs)
        return ConvertFrameReturn()

    convert_frame.CatchErrorsWrapper.__call__ = call


def code_of(function: Callable[..., Any]) -> Any:
    """Return the code that Dynamo compiles for a call: the function's own, the ``forward`` of its module, or the
    ``__call__`` of another object. None if it has no Python code.
    """
    plain = inspect.unwrap(function)
    if isinstance(plain, functools.partial):
        return code_of(plain.func)
    owner = getattr(plain, "__self__", plain)
    if isinstance(owner, torch.nn.Module):
        plain = inspect.unwrap(owner.forward)
    called = plain if hasattr(plain, "__code__") else inspect.unwrap(type(plain).__call__)
    return getattr(called, "__code__", None)
