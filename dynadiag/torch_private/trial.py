"""The private names of torch that trials lean on, in one place. Read in torch 2.11.0, 2.13.0 and 2.15.0.

All of this runs in the process of a trial, which is ours and ends with the trial: patching torch there disturbs
nobody.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo
import torch._dynamo.backends.registry as registry
from torch._dynamo import eval_frame, guards, output_graph, trace_rules
from torch._higher_order_ops.utils import _in_hop_compile

__all__ = [
    "backend_name",
    "backends_used",
    "bypass_caches",
    "caches_bypassed",
    "compile_in_this_process",
    "exclude_own_frames",
    "failed_compiles",
    "is_disabled",
    "is_hop_compile",
    "is_without_storage",
    "load_compiler",
    "load_late_imports",
    "lookup_backend",
    "reset",
    "rewrap",
    "skip_guard_timing",
    "use_eager_random_numbers",
    "wrap_call_user_compiler",
    "wrap_compiled_callables",
]

WrapCompiled = Callable[[Callable[..., Any], Callable[..., Any], bool], Callable[..., Any]]


def exclude_own_frames() -> None:
    """Have Dynamo treat this package as its own: frames of ours are never compiled, nor traced into.

    A program may come to `torch.compile`, and so to us, where it is compiled already (compiled autograd does).
    """
    trace_rules.add(__name__.partition(".")[0])


def wrap_compiled_callables(wrap: WrapCompiled) -> None:
    """Give ``wrap(compiled, original, fullgraph)`` in place of every callable that `torch.compile` makes.

    Modules are covered too: their compiled ``forward`` is made by the same call. What torch compiles for itself, to
    run a higher-order operator uncompiled, is not.
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
    """Whether torch compiles for itself: ``cond``, ``scan`` and the like, called uncompiled, run as compiled graphs."""
    return _in_hop_compile()


def wrap_call_user_compiler(hook: Callable[..., Any]) -> None:
    """Have ``hook(inner, output_graph, gm, example_inputs)`` called wherever Dynamo calls its backend."""
    inner = output_graph.OutputGraph.call_user_compiler

    @functools.wraps(inner)
    def call_user_compiler(self: Any, *args: Any, **kwargs: Any) -> Any:
        return hook(inner, self, *args, **kwargs)

    output_graph.OutputGraph.call_user_compiler = call_user_compiler


_UNNAMED_BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")  # functions, which carry no name


def backend_name(backend: Any) -> str:
    """The name of a backend that the program gave by name, else ``<function name>``."""
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
    """The names of the backends of all `torch.compile` calls so far."""
    return [backend_name(b) for b in eval_frame.cached_backends.values() if callable(b)]


def is_disabled() -> bool:
    """Whether the program or its environment turned Dynamo off: then `torch.compile` gives back what it is given."""
    return bool(torch._dynamo.config.disable) or os.environ.get("TORCHDYNAMO_DISABLE") == "1"


def failed_compiles() -> list[str]:
    """The exceptions of backends so far, also those that the program caught, in one line each."""
    from torch._dynamo.utils import get_compilation_metrics

    failed = [m for m in get_compilation_metrics() if m.fail_type in _BACKEND_FAILURES]
    return [f"{m.fail_type}: {''.join((m.fail_reason or '').splitlines()[:1])[:200]}" for m in failed]


_BACKEND_FAILURES = ("BackendCompilerFailed", "InductorError")


def load_compiler() -> None:
    """Load what a compile for a GPU needs, and use no GPU."""
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
    """What Inductor loads and hashes at its first product and its first reduction over several dimensions."""
    importlib.import_module("sympy.physics.units")
    importlib.import_module("torch._inductor.codecache").CacheBase.get_system()


def lookup_backend(name: str) -> Any:
    return registry.lookup_backend(name)


def bypass_caches() -> None:
    """Leave the FX graph cache and the AOTAutograd cache alone.

    Not by `force_disable_caches`: that also turns off what a profile of earlier runs says about dynamic shapes, and
    so changes what is traced.
    """
    import torch._functorch.config as functorch_config  # heavy: only in trials that bypass them
    import torch._inductor.config as inductor_config

    _set_for_all_threads(inductor_config, "fx_graph_cache", False)
    _set_for_all_threads(inductor_config, "fx_graph_remote_cache", False)
    _set_for_all_threads(functorch_config, "enable_autograd_cache", False)


def _set_for_all_threads(config: Any, name: str, value: object) -> None:
    """A value that is set is that of the thread that sets it (seen in 2.13); one of the environment is everybody's."""
    setattr(config, name, value)
    config._config[name].env_value_force = value


@contextlib.contextmanager
def caches_bypassed() -> Iterator[None]:
    """As `bypass_caches`, for a while."""
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    with (
        inductor_config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        yield


def compile_in_this_process() -> None:
    """Have Inductor start no compiler processes of its own: a process that lives for one compile gains nothing."""
    import torch._inductor.config as inductor_config

    inductor_config.compile_threads = 1


def rewrap(compiled: Any, wrap: WrapCompiled) -> Any:
    """What `torch.compile` or ``Module.compile()`` made before `wrap_compiled_callables`, wrapped as those after it."""
    if isinstance(compiled, eval_frame.OptimizedModule):
        return compiled.dynamo_ctx(compiled._orig_mod)
    if isinstance(compiled, torch.nn.Module):
        compiled._compiled_call_impl = wrap(compiled._compiled_call_impl, compiled._call_impl, False)
        return compiled
    return wrap(compiled, compiled._torchdynamo_orig_callable, False)


def is_without_storage(tensor: torch.Tensor) -> bool:
    """Whether it is one of the zeros that autograd gives without memory."""
    return tensor._is_zerotensor()


def skip_guard_timing() -> None:
    """Have Dynamo not time each new guard for its metrics: it writes 32 MB first, to empty the processor's cache."""
    guards.profile_guard_manager = lambda *_arguments: 0.0


def use_eager_random_numbers() -> None:
    """Have Inductor draw from eager's generator, in eager's order: else dropout differs with one seed."""
    import torch._inductor.config as inductor_config

    _set_for_all_threads(inductor_config, "fallback_random", True)


def reset() -> None:
    """Forget what was compiled, and number compiles from 0/0 again.

    Inductor's table of decompositions is forgotten too: it is put together at the first compile, and a program that
    registers its own before its first compile must find it as a fresh interpreter would.
    """
    from torch._dynamo import convert_frame
    from torch._inductor.decomposition import fast_random_decomps

    torch._dynamo.reset()
    fast_random_decomps.cache_clear()
    convert_frame.FRAME_COUNTER = 0
    convert_frame.FRAME_COMPILE_COUNTER.clear()
