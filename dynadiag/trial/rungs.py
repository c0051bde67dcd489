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
from dynadiag.trial import accuracy
from dynadiag.trial.plan import RUNGS
from dynadiag.trial.runtime import TRIAL
from dynadiag.trial.workplace import own_caches

__all__ = ["compiled_at_rung", "install", "own_rung"]


def own_rung(backend: Any) -> str:
    """The rung of a backend as the program gave it: its name where that is a rung, else ``custom``."""
    name = torch_private.backend_name(backend)
    return name if name in RUNGS else "custom"


def install() -> None:
    """Install the hooks in torch, once per process. They follow the plan that is current when they are called."""
    torch_private.skip_ours_in_dynamo()
    torch_private.wrap_compiled_callables(compiled_at_rung)
    torch_private.wrap_call_user_compiler(_call_user_compiler)
    torch_private.leave_guards_untimed()
    TRIAL.on_start(_prepare)


def _prepare() -> None:
    if not TRIAL.plan.caches:
        torch_private.bypass_caches()
    if TRIAL.plan.own_caches:
        os.environ |= own_caches(Path(os.environ["TMPDIR"]))
    if TRIAL.plan.accuracy or TRIAL.plan.fallback_random:
        torch_private.same_random_numbers()


def compiled_at_rung(compiled: Callable[..., Any], original: Callable[..., Any], fullgraph: bool) -> Callable[..., Any]:
    """Wrap a compiled callable so that it follows the current plan at each call."""

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if TRIAL.at_first_call is not None:
            TRIAL.reached_compiled_call()
        if TRIAL.plan.rung == "uncompiled" or (fullgraph and TRIAL.bypass is not None and TRIAL.bypass(original)):
            return original(*args, **kwargs)
        if TRIAL.plan.accuracy:
            return accuracy.compared_call(compiled, original, args, kwargs)
        return compiled(*args, **kwargs)

    # Dynamo recognizes its own wrapper by this id.
    call._torchdynamo_wrapper_id = id(call)  # type: ignore[attr-defined]
    return call


def _call_user_compiler(inner: Callable[..., Any], output_graph: Any, *args: Any, **kwargs: Any) -> Any:
    if torch_private.in_own_eager_run():
        return inner(output_graph, *args, **kwargs)
    own = output_graph.compiler_fn
    rung = own_rung(own)
    TRIAL.send("backend", name=torch_private.backend_name(own), rung=rung)
    wanted = TRIAL.plan.rung
    if wanted is None or RUNGS.index(wanted) >= RUNGS.index(rung):
        return inner(output_graph, *args, **kwargs)
    output_graph.compiler_fn = torch_private.lookup_backend("inductor" if wanted == "triton" else wanted)
    try:
        return inner(output_graph, *args, **kwargs)
    finally:
        output_graph.compiler_fn = own
