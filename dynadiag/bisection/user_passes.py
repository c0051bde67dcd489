"""The passes of a custom backend: functions of the user that it calls with an FX graph.

torch knows nothing about the parts of a custom backend. A user function that the backend reaches, that gets a graph and
changes it, is a pass. A function that only reads or compiles the graph is not one, nor is one that calls passes. This
shows only after the function has run. So a pass that is off runs too, and its changes are undone, unless the plan names
it: that is how a pass that never returns is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Graph, GraphModule

from dynadiag.bisection.function_hooks import hook_function, reachable_functions
from dynadiag.torch_private import bisect as torch_private
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import DecisionWithdrawn

_called_passes: list[str] = []  # keys of the passes called so far


def hook_user_passes(backend: Any) -> None:
    """Hook the user's functions that ``backend`` reaches, so that passes can be switched off."""
    if not TRIAL.observes("pass"):
        return
    own = torch_private.innermost_function(backend)
    for function in reachable_functions(backend):
        if function is not own:
            hook_function(function, _run_pass)


def _run_pass(function: Any, *args: Any, **kwargs: Any) -> Any:
    graph = next((a for a in (*args[:2], *kwargs.values()) if isinstance(a, (Graph, GraphModule))), None)
    if graph is None:
        return function(*args, **kwargs)
    key, on = _decision(function)
    switch = TRIAL.plan.switch("pass")
    if not on and switch is not None and not switch.keep:
        _called_passes.append(key)
        return graph
    before, kept = len(_called_passes), torch_private.copy_of_graph(graph)
    result, error = _run_catching(lambda: function(*args, **kwargs))
    if len(_called_passes) > before or not (error or _is_changed(graph, kept, result)):
        TRIAL.send(DecisionWithdrawn(key))
        on = True
    else:
        _called_passes.append(key)
    if on and error is not None:
        raise error
    return result if on else _undo(graph, kept, result)


def _run_catching(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - raised again if the pass is on
        return None, error


def _is_changed(graph: Any, kept: Graph, result: Any) -> bool:
    if isinstance(result, (Graph, GraphModule)) and result is not graph:
        return True
    return _is_pass_result(result, graph) and str(torch_private.graph_of(graph)) != str(kept)


def _is_pass_result(result: Any, graph: Any) -> bool:
    """Whether a pass may return this: the graph, nothing, a boolean or a count. A compiler returns something else."""
    return result is None or result is graph or isinstance(result, int)


def _undo(graph: Any, kept: Graph, result: Any) -> Any:
    if str(torch_private.graph_of(graph)) != str(kept):
        torch_private.restore_graph(graph, kept)
    return type(result)() if isinstance(result, int) else graph


def _decision(function: Any) -> tuple[str, bool]:
    code = function.__code__
    here = {"compile_id": torch_private.compile_id(), "graph": "dynamo"}
    key = f"{here['compile_id']}/backend/{function.__qualname__}"
    key += f"/{TRIAL.occurrence('pass', key)}"
    lines = [(code.co_filename, code.co_firstlineno)]
    return key, TRIAL.is_on("pass", key, lambda: {"name": function.__qualname__, "lines": lines, **here})
