"""The rungs, in a trial's process: replaces the backend of each compiled graph, and nothing else.

The backend is replaced where Dynamo calls it, so that every other argument of `torch.compile` stays as the program gave
it. (`set_stance` would drop ``fullgraph``, and another ``backend=`` would reject ``options``.)
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynadiag.torch_private import trial as torch_private
from dynadiag.torch_private.exports import is_exporting
from dynadiag.trial import accuracy, exports
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import BackendUsed
from dynadiag.trial.graph_call import differentiate
from dynadiag.trial.plan import RUNGS
from dynadiag.trial.sandbox import cache_variables


def rung_of_backend(backend: Any) -> str:
    """The rung of the backend that the program chose: its name if that is a rung, else ``custom``."""
    name = torch_private.backend_name(backend)
    return name if name in RUNGS else "custom"


def install() -> None:
    """Install the hooks in torch, once per process. They follow the plan that is current when they are called."""
    torch_private.exclude_own_frames()
    torch_private.wrap_compiled_callables(at_planned_rung)
    torch_private.wrap_call_user_compiler(_call_user_compiler)
    torch_private.skip_guard_timing()
    exports.install()
    TRIAL.on_start(_apply_plan)


def _apply_plan() -> None:
    if not TRIAL.plan.caches:
        torch_private.bypass_caches()
    if TRIAL.plan.own_caches:
        os.environ |= cache_variables(Path(os.environ["TMPDIR"]))
    if TRIAL.plan.accuracy or TRIAL.plan.fallback_random:
        torch_private.use_eager_random_numbers()
    if TRIAL.plan.precise_casts:
        torch_private.use_eager_casts()


def at_planned_rung(compiled: Callable[..., Any], original: Callable[..., Any], fullgraph: bool) -> Callable[..., Any]:
    """Wrap a compiled callable so that it follows the current plan at each call."""

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if TRIAL.at_first_call is not None:
            TRIAL.before_compiled_call()
        if is_exporting():
            return compiled(*args, **kwargs)
        if TRIAL.call_observer is not None:
            return TRIAL.call_observer(compiled, original, args, kwargs)
        if TRIAL.plan.rung == "uncompiled" or (
            fullgraph and TRIAL.skips_compile is not None and TRIAL.skips_compile(original)
        ):
            result = original(*args, **kwargs)
            if TRIAL.plan.differentiate:
                differentiate(result, keep_graph=True)
            return result
        if TRIAL.plan.accuracy:
            return accuracy.call_and_compare(compiled, original, args, kwargs)
        return compiled(*args, **kwargs)

    # Dynamo recognizes its own wrapper by this id.
    call._torchdynamo_wrapper_id = id(call)  # type: ignore[attr-defined]
    return call


def _call_user_compiler(inner: Callable[..., Any], output_graph: Any, *args: Any, **kwargs: Any) -> Any:
    if torch_private.is_hop_compile() or is_exporting():
        return inner(output_graph, *args, **kwargs)
    own = output_graph.compiler_fn
    rung = rung_of_backend(own)
    TRIAL.send(BackendUsed(torch_private.backend_name(own)))
    wanted = TRIAL.plan.rung
    backend = own
    if wanted is not None and RUNGS.index(wanted) < RUNGS.index(rung):
        backend = torch_private.lookup_backend("inductor" if wanted == "triton" else wanted)
    if TRIAL.wraps_backend is not None:
        backend = TRIAL.wraps_backend(backend)
    output_graph.compiler_fn = backend
    try:
        return inner(output_graph, *args, **kwargs)
    finally:
        output_graph.compiler_fn = own
