"""torch's private names that trials use. Read in torch 2.11.0, 2.13.0 and 2.15.0.

All of this runs in a trial's process, which is ours and ends with the trial, so torch may be patched.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch
import torch._dynamo
import torch._dynamo.backends.registry as registry
from torch._dynamo import eval_frame, guards, output_graph, trace_rules
from torch._higher_order_ops.utils import _in_hop_compile

WrapCompiled = Callable[[Callable[..., Any], Callable[..., Any], bool], Callable[..., Any]]


def input_sources(graph: torch.fx.Graph) -> list[str | None]:
    """Where each input of a graph of Dynamo's comes from, in torch's notation; ``None`` where torch does not say."""
    return [_source_name(node) for node in graph.find_nodes(op="placeholder")]


def _source_name(node: torch.fx.Node) -> str | None:
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)  # of a copy
    name = getattr(source, "name", None)
    return name() if callable(name) else name  # a method in torch 2.11


def exclude_own_frames() -> None:
    """Make Dynamo treat this package as its own: our frames are never compiled or traced into.

    A program may call `torch.compile`, and so us, from compiled code (compiled autograd does).
    """
    trace_rules.add(__name__.partition(".")[0])


def wrap_compiled_callables(wrap: WrapCompiled) -> None:
    """Return ``wrap(compiled, original, fullgraph)`` in place of every callable that `torch.compile` makes.

    Modules are covered too: the same call makes their compiled ``forward``. What torch compiles for itself, to run a
    higher-order operator uncompiled, is not wrapped.
    """
    inner = eval_frame.OptimizeContext.__call__

    @functools.wraps(inner)
    def call(context: Any, fn: Any) -> Any:
        compiled = inner(context, fn)
        if is_hop_compile():
            return compiled
        if isinstance(fn, (torch.nn.Module, type)) or isinstance(compiled, (torch.nn.Module, type)):
            return compiled
        original = getattr(compiled, "_torchdynamo_orig_callable", fn)
        return wrap(compiled, original, bool(getattr(context, "fullgraph", False)))

    eval_frame.OptimizeContext.__call__ = call


def is_hop_compile() -> bool:
    """Whether torch compiles for itself: eager ``cond``, ``scan`` and the like run as compiled graphs."""
    return _in_hop_compile()


def wrap_call_user_compiler(hook: Callable[..., Any]) -> None:
    """Call ``hook(inner, output_graph, gm, example_inputs)`` wherever Dynamo calls its backend."""
    inner = output_graph.OutputGraph.call_user_compiler

    @functools.wraps(inner)
    def call_user_compiler(self: Any, *args: Any, **kwargs: Any) -> Any:
        return hook(inner, self, *args, **kwargs)

    output_graph.OutputGraph.call_user_compiler = call_user_compiler


def compiled_code(graph: Any) -> CodeType:
    """The code of the function, or of the part behind a break, that Dynamo's ``OutputGraph`` is of."""
    code: CodeType = graph.root_tx.f_code
    return code


# Plain functions without a backend name.
_UNNAMED_BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


def backend_name(backend: Any) -> str:
    """Return the name of a backend that the program gave by name, else ``<function name>``."""
    backend = eval_frame.innermost_backend(backend)
    name = getattr(backend, "compiler_name", None)
    wrapped = getattr(backend, "compiler_fn", backend)
    if name is None:
        name = next((n for n in _UNNAMED_BACKENDS if _is_registered(n, backend)), None)
    elif name != "inductor" and not _is_registered(name, wrapped):
        name = None
    return name or f"<{getattr(wrapped, '__qualname__', type(wrapped).__name__)}>"


def _is_registered(name: str, backend: Any) -> bool:
    return name in registry._BACKENDS and registry.lookup_backend(name) is backend


def backends_used() -> list[str]:
    """Return the names of the backends of all `torch.compile` calls so far."""
    return [backend_name(b) for b in eval_frame.cached_backends.values() if callable(b)]


def is_disabled() -> bool:
    """Whether the program or its environment disabled Dynamo, so that `torch.compile` returns its argument."""
    return bool(torch._dynamo.config.disable) or os.environ.get("TORCHDYNAMO_DISABLE") == "1"


def failed_compiles() -> list[str]:
    """Return the exceptions of backends so far, one line each. Those that the program caught are included."""
    from torch._dynamo.utils import get_compilation_metrics

    failed = [m for m in get_compilation_metrics() if m.fail_type in _BACKEND_FAILURES]
    return [f"{m.fail_type}: {''.join((m.fail_reason or '').splitlines()[:1])[:200]}" for m in failed]


_BACKEND_FAILURES = ("BackendCompilerFailed", "InductorError")


def start_autograd() -> None:
    """Let autograd start where nothing is compiled: in a build for GPUs, one that starts within a compile takes no
    backward in a fork of the process (2.11 to 2.15). With a GPU none can be made.
    """
    if not torch.cuda.is_available():
        with torch.enable_grad():
            torch.ones(1, requires_grad=True).sum().backward()


def load_compiler() -> None:
    """Import what a compile for a GPU needs, without using a GPU."""
    for module in _COMPILER_MODULES:
        importlib.import_module(module)


_COMPILER_MODULES = (
    "torch._inductor.compile_fx",
    "torch._inductor.async_compile",
    "torch._inductor.codegen.triton",
    "torch._inductor.codegen.wrapper",
    "torch._inductor.kernel",
    "torch._inductor.runtime.triton_heuristics",
    "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad",
    "torch._inductor.fx_passes.fuse_attention",
)


def load_late_imports() -> None:
    """Import and compute what Inductor needs only for its first matrix product, multi-dimensional reduction and key of
    a cache, for which it reads the source of all of torch.
    """
    importlib.import_module("sympy.physics.units")
    codecache = importlib.import_module("torch._inductor.codecache")
    codecache.CacheBase.get_system()
    codecache.torch_key()


def lookup_backend(name: str) -> Any:
    """Return the backend that torch registers under this name."""
    return registry.lookup_backend(name)


def bypass_caches() -> None:
    """Disable the FX graph cache and the AOTAutograd cache.

    `force_disable_caches` is not used: it also turns off profile-guided dynamic shapes, and so changes what is traced.
    """
    import torch._functorch.config as functorch_config  # slow to import: only for trials that bypass the caches
    import torch._inductor.config as inductor_config

    _set_for_all_threads(inductor_config, "fx_graph_cache", False)
    _set_for_all_threads(inductor_config, "fx_graph_remote_cache", False)
    _set_for_all_threads(functorch_config, "enable_autograd_cache", False)


def _set_for_all_threads(config: Any, name: str, value: object) -> None:
    """Set a config value for all threads. A plain assignment holds only for the current thread (seen in 2.13)."""
    setattr(config, name, value)
    config._config[name].env_value_force = value


@contextlib.contextmanager
def caches_bypassed() -> Iterator[None]:
    """As `bypass_caches`, for the length of a ``with`` block."""
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    with (
        inductor_config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        yield


def compile_in_this_process() -> None:
    """Make Inductor start no compile workers: a process that lives for one compile gains nothing from them."""
    import torch._inductor.config as inductor_config

    inductor_config.compile_threads = 1


@contextlib.contextmanager
def recompile_limit(count: int) -> Iterator[None]:
    """Let Dynamo compile a function up to ``count`` times before it leaves it to Python."""
    with torch._dynamo.config.patch(recompile_limit=count, accumulated_recompile_limit=10 * count):
        yield


def rewrap(compiled: Any, wrap: WrapCompiled) -> Any:
    """Wrap a callable that `torch.compile` or ``Module.compile()`` made before `wrap_compiled_callables` was called."""
    if isinstance(compiled, eval_frame.OptimizedModule):
        return compiled.dynamo_ctx(compiled._orig_mod)
    if isinstance(compiled, torch.nn.Module):
        compiled._compiled_call_impl = wrap(compiled._compiled_call_impl, compiled._call_impl, False)
        return compiled
    return wrap(compiled, compiled._torchdynamo_orig_callable, False)


def observe_module(module: torch.nn.Module, call: Callable[..., Any]) -> None:
    """Let ``call`` make each call of a module. It gets the function that makes it otherwise, and the arguments."""
    module._compiled_call_impl = functools.partial(call, module._call_impl)


def is_module_call(function: Any) -> bool:
    """Whether a function is a module, or the method by which torch calls one: not another method of it."""
    names = ("_wrapped_call_impl", "_call_impl", "__call__")
    return isinstance(function, torch.nn.Module) or getattr(function, "__name__", "") in names


def uncompiled(value: Any) -> Any:
    """What `torch.compile` made a function or a module of; anything else itself."""
    if isinstance(value, eval_frame.OptimizedModule):
        return value._orig_mod
    is_made = isinstance(value, FunctionType) and not getattr(value, "_torchdynamo_disable", False)
    return getattr(value, "_torchdynamo_orig_callable", value) if is_made else value


def is_without_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of autograd's zeros without memory."""
    return tensor._is_zerotensor()


def skip_guard_timing() -> None:
    """Make Dynamo not time each new guard for its metrics. It writes 32 MB first, to flush the processor's cache.

    What it calls instead is no function, as torch's own is none: a function counts as one that the program put there.
    """
    guards.profile_guard_manager = functools.partial(lambda *_arguments: 0.0)


def use_eager_random_numbers() -> None:
    """Make Inductor draw random numbers from eager's generator, in eager's order.

    Otherwise dropout differs for one seed.
    """
    import torch._inductor.config as inductor_config

    _set_for_all_threads(inductor_config, "fallback_random", True)


def use_eager_casts() -> None:
    """Make Inductor round a value of a narrow type where eager stores it, also inside a kernel."""
    import torch._inductor.config as inductor_config

    _set_for_all_threads(inductor_config, "emulate_precision_casts", True)


def reset() -> None:
    """Forget all compiled code, number compiles from 0/0 again, and count graphs and kernels from 0.

    Inductor's table of decompositions is cleared too. It is built at the first compile, and a program that registers
    its own decompositions before its first compile must find it as in a fresh interpreter.
    """
    from torch._dynamo import convert_frame
    from torch._dynamo.utils import counters
    from torch._inductor import metrics
    from torch._inductor.decomposition import fast_random_decomps

    torch._dynamo.reset()
    counters.clear()
    metrics.reset()
    fast_random_decomps.cache_clear()
    convert_frame.FRAME_COUNTER = 0
    convert_frame.FRAME_COMPILE_COUNTER.clear()


def constant_globals(namespaces: Iterable[Mapping[str, Any]]) -> re.Pattern[str]:
    """The names of globals in which Dynamo keeps what functions with `assume_constant_result` returned: `sub_f`,
    `sub_f_1` and so on for the function `_f`, `f_0` and so on for `f` (torch 2.11 to 2.15).

    They are globals of the function that was compiled, which may be of another module than these functions.
    """
    every = ((name, each) for space in namespaces for name, each in list(space.items()))
    marked = {name for name, each in every if getattr(each, "_dynamo_marked_constant", False)}
    forms = [rf"sub{name}(?:_\d+)?" if name.startswith("_") else rf"{name}_\d+" for name in sorted(marked)]
    return re.compile("|".join(forms) or r"(?!)")
