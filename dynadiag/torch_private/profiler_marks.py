"""What torch's profiler shows about a call of compiled code, and the globals that hold its graphs.

The profiler marks each lookup of compiled code (which checks the guards) and each run of the result. It does not mark
where a graph begins and ends. Dynamo's bytecode calls a graph by a global name, so for the length of a profile the
object under that name is replaced by a function that adds a mark. Read in torch 2.11.0, 2.13.0 and 2.15.0. 2.11 also
marks one lookup, without a result, for that function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

COMPILED_REGION = "Torch-Compiled Region: "  # convert_frame.py: the compile id follows
CACHE_LOOKUP = "TorchDynamo Cache Lookup"  # eval_frame.c
_GRAPH = "__compiled_fn"  # OutputGraph.compile_and_call_fx_graph, output_graph.py: prefix of the global names


def profiler_mark(name: str) -> Any:
    """Return a context manager that marks a profile with ``name``. It is faster than torch's public one."""
    import torch

    return torch._C._profiler._RecordFunctionFast(name)


@contextmanager
def mark_graphs(name: str) -> Iterator[None]:
    """Mark every compiled graph of this process in profiles with ``name``. The globals are restored afterwards."""
    places = [(scope, key, scope[key]) for scope, key in _graph_globals()]
    try:
        for scope, key, graph in places:
            scope[key] = with_mark(graph, name)
        yield
    finally:
        for scope, key, graph in places:
            if key in scope:  # torch removes a graph together with the code that calls it
                scope[key] = graph


def _graph_globals() -> Iterator[tuple[dict[str, Any], str]]:
    """The globals that hold graphs, from torch's table for cleaning them up."""
    from torch._dynamo.utils import CleanupManager

    for hooks in list(CleanupManager.instance.values.values()):
        for hook in hooks:
            if hook.name.startswith(_GRAPH) and hook.name in hook.scope:
                yield hook.scope, hook.name


def with_mark(graph: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that calls a graph between the begin and the end of a mark."""
    from torch._dynamo.eval_frame import skip_code

    def marked(*args: Any, **kwargs: Any) -> Any:
        with profiler_mark(name):
            return graph(*args, **kwargs)

    skip_code(marked.__code__)  # otherwise Dynamo would compile it as a function of the program's
    return marked
