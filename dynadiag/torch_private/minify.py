"""torch's private names that the minifier uses. Read in torch 2.11.0, 2.13.0, 2.15.0.

All of this runs in a trial's process, which is ours and ends with the trial.
"""

from __future__ import annotations

import copy
import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.torch_private.capture import unwrapped_backend
from dynadiag.torch_private.trial import backend_name

FAKE_STORE = "torch.testing._internal.distributed.fake_pg.FakeStore"  # of groups whose collectives do nothing

_CONFIG_MODULES = (
    "torch._inductor.config",
    "torch._dynamo.config",
    "torch._functorch.config",
    "torch.fx.experimental._config",
)
_FIRST_BUFFER_ARGUMENT = 7  # index of the first argument of flex attention that is a tensor its functions close over


def config_modules() -> Iterator[ModuleType]:
    """Yield the loaded configuration modules of torch."""
    yield from (sys.modules[name] for name in _CONFIG_MODULES if name in sys.modules)


def lowering_tables() -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield the tables of Inductor's lowerings and decompositions, each with its name in source."""
    for module, name in (
        ("torch._inductor.lowering", "lowerings"),
        ("torch._inductor.decomposition", "decompositions"),
        ("torch._decomp", "global_decomposition_table"),
    ):
        table = getattr(sys.modules.get(module), name, None)
        if name == "global_decomposition_table" and table is not None:
            for kind, inner in table.items():
                yield f'{module}.{name}["{kind}"]', inner
        elif table is not None:
            yield f"{module}.{name}", table


def backend_name_or_function(backend: Any) -> str | Callable[..., Any]:
    """Return the name of a backend that torch itself registers, else the function that the program gave."""
    name, found = backend_name(backend), unwrapped_backend(backend)
    home = getattr(found, "__module__", None) or ""
    return name if not name.startswith("<") and home.startswith("torch.") else found


def backward_nodes(outputs: Any) -> list[Any]:
    """Return the autograd nodes of compiled graphs that these tensors came from."""
    pending = [t.grad_fn for t in outputs if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    found: dict[int, Any] = {}
    for node in pending:
        if "CompiledFunction" in node.name():
            found.setdefault(id(node), node)
        else:
            pending.extend(n for n, _ in node.next_functions if n is not None and "CompiledFunction" in n.name())
    return list(found.values())


def wrap_run_node(begun: Callable[[Any], None], failed: Callable[[Any], None]) -> None:
    """Call ``begun(node)`` before each node is lowered, and ``failed(node)`` if that raises."""
    from torch._inductor.graph import GraphLowering

    inner = GraphLowering.run_node

    @functools.wraps(inner)
    def run_node(self: Any, node: Any) -> Any:
        begun(node)
        try:
            return inner(self, node)
        except Exception:
            failed(node)
            raise

    GraphLowering.run_node = run_node


def wrap_run_backward(hook: Callable[..., Any]) -> None:
    """Call ``hook(inner, *args, **kwargs)`` in place of each backward pass that is started from Python."""
    torch.autograd._engine_run_backward = functools.partial(hook, torch.autograd._engine_run_backward)


def reaches_program(error: BaseException) -> bool:
    """Whether a backend's exception reaches the program. Dynamo may turn others into a graph break or a restart."""
    from torch._dynamo.exc import ShortenTraceback, TorchDynamoException

    return isinstance(error, ShortenTraceback) or not isinstance(error, TorchDynamoException)


def is_full_graph(output_graph: Any) -> bool:
    """Whether a graph is compiled with ``fullgraph=True``."""
    return bool(output_graph.root_tx.one_graph)


def custom_op_definition(name: str) -> Any:
    """Return what ``torch.library.custom_op`` made under this name (``namespace::op``), or None."""
    from torch._library.custom_ops import OPDEFS

    return OPDEFS.get(name)


@dataclass(slots=True)
class LibraryOperator:
    """An operator of a `torch.library.Library`: its schema, its registered functions by dispatch key, and what was
    registered for its gradient (the functions for the backward and the setup of its context).
    """

    schema: str
    kernels: list[tuple[str, Any]] = field(default_factory=list)
    gradient: tuple[Any, Any] | None = None


_LIBRARY_OPERATORS: dict[str, LibraryOperator] = {}


def track_libraries() -> None:
    """Remember what `torch.library.Library` defines from now on. torch keeps nothing that can be queried."""
    from torch._library import autograd

    define, impl, make_autograd = torch.library.Library.define, torch.library.Library.impl, autograd.make_autograd_impl
    gradients: dict[Any, tuple[Any, Any]] = {}  # the kernel that torch makes of the registered functions -> these

    @functools.wraps(make_autograd)
    def noted_autograd(op: Any, info: Any) -> Any:
        kernel = make_autograd(op, info)
        gradients[kernel] = info._backward_fn, info._setup_context_fn
        return kernel

    @functools.wraps(define)
    def noted_define(self: Any, schema: str, *args: Any, **kwargs: Any) -> Any:
        result = define(self, schema, *args, **kwargs)
        _LIBRARY_OPERATORS[f"{self.ns}::{re.split(r'[.(]', schema.strip())[0]}"] = LibraryOperator(schema)
        return result

    @functools.wraps(impl)
    def noted_impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", *args: Any, **kwargs: Any) -> Any:
        result = impl(self, op_name, fn, dispatch_key, *args, **kwargs)
        name = op_name if isinstance(op_name, str) else op_name._schema.name
        known = _LIBRARY_OPERATORS.get(f"{self.ns}::{name.split('::')[-1].split('.')[0]}")
        if known is not None and fn in gradients:
            known.gradient = gradients[fn]
        elif known is not None:
            known.kernels.append((dispatch_key or self.dispatch_key, fn))
        return result

    torch.library.Library.define, torch.library.Library.impl = noted_define, noted_impl
    autograd.make_autograd_impl = noted_autograd


def find_library_operator(name: str) -> LibraryOperator | None:
    """Return what was defined as ``namespace::op`` since `track_libraries`."""
    return _LIBRARY_OPERATORS.get(name)


def fake_function(name: str) -> Any:
    """Return the function that was registered with `torch.library.register_fake`, or None."""
    from torch._library.simple_registry import singleton

    found = getattr(singleton.find(name).fake_impl.kernel, "func", None)
    if isinstance(found, FunctionType) and found.__qualname__.startswith("_check_pystubs_once."):
        inside = dict(zip(found.__code__.co_freevars, found.__closure__ or (), strict=True))
        found = inside["func"].cell_contents
    return found


def copy_graph_module(module: GraphModule) -> GraphModule:
    """Return the same graph over the same parameters, as a new module. A backend may change the module that it gets."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.find_nodes(op="call_function", target=torch.ops.higher_order.flex_attention):
        if not any(node.args[_FIRST_BUFFER_ARGUMENT:]):
            # Dynamo adds empty tuples there that it does not accept again
            node.args = node.args[:_FIRST_BUFFER_ARGUMENT]
    targets = dict.fromkeys(str(n.target) for n in module.graph.nodes if n.op in ("get_attr", "call_module"))
    held = {target: functools.reduce(getattr, target.split("."), module) for target in targets}
    copied = GraphModule({k: copy_graph_module(v) if isinstance(v, GraphModule) else v for k, v in held.items()}, graph)
    copied.train(module.training)
    copied.meta = dict(module.meta)
    return copied


def registered_functions(definition: Any) -> tuple[Any, Any, Any]:
    """The functions that the user registered for an operator: fake kernel, backward, setup of its context; or None."""
    return definition._abstract_fn, definition._backward_fn, definition._setup_context_fn


def changed_arguments(definition: Any) -> tuple[str, ...]:
    """The names of the arguments that the schema of an operator marks as changed."""
    arguments = definition._opoverload._schema.arguments
    return tuple(each.name for each in arguments if each.alias_info is not None and each.alias_info.is_write)


def trace_aten_graph(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """Return the ATen operators that a graph calls on these inputs, as a graph with the same inputs."""
    from torch.fx.experimental.proxy_tensor import make_fx

    copies = [t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t for t in inputs]
    with torch.fx.traceback.preserve_node_meta():  # each operator keeps its source line
        flat = make_fx(torch.fx.Interpreter(copy.deepcopy(module)).run)(*copies)
    output = flat.graph.output_node()
    if isinstance(output.args[0], torch.fx.Node):
        output.args = ((output.args[0],),)
    flat.graph.eliminate_dead_code()  # forward-mode AD computes unused values of tensors without memory
    return GraphModule(flat, flat.graph)  # make_fx names its module after the function, which messages would show


def group_ranks() -> list[list[int]]:
    """The ranks of each process group in the order in which it was made, the one of all ranks first.

    Graphs name a group by its number in this order. Of a group that this process is not in the ranks are empty. There
    are none where no process group was made.
    """
    distributed: Any = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return []
    world = distributed.distributed_c10d._world
    named = {name: sorted(world.pg_group_ranks[group]) for group, name in world.pg_names.items()}
    return [named.get(str(number), []) for number in range(world.group_count)]
