"""What torch shows of a call whose code is compiled: marks in a profile, and where its graphs hang.

torch's profiler marks each look-up of compiled code (the guards are checked in it) and each run of what was found.
Where a graph is called and where it is done is not marked: the bytecode that Dynamo made calls it by a global name, and
for as long as a profile is taken a mark is put around what hangs there. Read in torch 2.11.0, 2.13.0 and 2.15.0; 2.11
also marks one look-up, which finds nothing, for the function that we put there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["CACHE_LOOKUP", "COMPILED_REGION", "mark_graphs", "profiler_mark"]

COMPILED_REGION = "Torch-Compiled Region: "  # convert_frame.py: the compile id follows
CACHE_LOOKUP = "TorchDynamo Cache Lookup"  # eval_frame.c
_GRAPH = "__compiled_fn"  # OutputGraph.compile_and_call_fx_graph, output_graph.py: how the global names begin


def profiler_mark(name: str) -> Any:
    """A context manager that stands in a profile under ``name``, and costs less than torch's public one."""
    import torch

    return torch._C._profiler._RecordFunctionFast(name)


@contextmanager
def mark_graphs(name: str) -> Iterator[None]:
    """Have every compiled graph of this process stand in profiles under ``name``; afterwards all is as it was."""
    places = [(scope, key, scope[key]) for scope, key in _graph_globals()]
    try:
        for scope, key, graph in places:
            scope[key] = _with_mark(graph, name)
        yield
    finally:
        for scope, key, graph in places:
            if key in scope:  # torch takes a graph away with the code that calls it
                scope[key] = graph


def _graph_globals() -> Iterator[tuple[dict[str, Any], str]]:
    """The globals that hold graphs, by what torch keeps to clean them up with the code that they belong to."""
    from torch._dynamo.utils import CleanupManager

    for hooks in list(CleanupManager.instance.values.values()):
        for hook in hooks:
            if hook.name.startswith(_GRAPH) and hook.name in hook.scope:
                yield hook.scope, hook.name


def _with_mark(graph: Callable[..., Any], name: str) -> Callable[..., Any]:
    from torch._dynamo.eval_frame import skip_code

    def marked(*args: Any, **kwargs: Any) -> Any:
        with profiler_mark(name):
            return graph(*args, **kwargs)

    skip_code(marked.__code__)  # Dynamo would compile it as a function that the program calls
    return marked
