"""A profile of every operator call of a process, with marks around compiled calls, compiles and graphs.

Read in torch 2.13.0. torch's profiler is the only observer of operators that Dynamo does not see: a mode of ours would
change what it compiles. Compiling calls operators too, on fake tensors. So the method that Dynamo is entered by gets a
mark around it, and the function that Dynamo got from a backend gets one for each of its calls.

The profiler marks each lookup of compiled code (which checks the guards) and each run of the result. It does not mark
where a graph begins and ends. Dynamo's bytecode calls a graph by a global name, so for the length of a profile the
object under that name is replaced by a function that adds a mark. Read in torch 2.11.0, 2.13.0 and 2.15.0. 2.11 also
marks one lookup, without a result, for that function.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from types import CodeType
from typing import Any

COMPILED_BACKWARD = "CompiledFunctionBackward"  # the autograd node that runs, and at first compiles, a graph's backward
_ALLOCATES = ("empty", "new_empty")
_OPERATOR = re.compile(r"(?!autograd::|torch::autograd::|torch_dynamo::)[A-Za-z_]\w*::[\w.]+$")


def compiled_call_codes() -> frozenset[CodeType]:
    """Return the code of the functions that ``torch.compile`` returns: those that set Dynamo's callback."""
    from torch._dynamo import eval_frame

    found, left = set(), [eval_frame._TorchDynamoContext.__call__.__code__]
    while left:
        code = left.pop()
        left += [each for each in code.co_consts if isinstance(each, CodeType)]
        if eval_frame._callback_from_stance.__name__ in code.co_names:
            found.add(code)
    return frozenset(found)


def leave_to_python(*functions: Callable[..., Any]) -> None:
    """Keep Dynamo from compiling functions of ours that the program comes to call."""
    from torch._dynamo.eval_frame import skip_code

    for function in functions:
        skip_code(function.__code__)


def mark_compiles(name: str) -> None:
    """Mark each compile with ``name``, and leave it out of ``sys.setprofile``: compiling makes millions of calls."""
    from torch._dynamo import convert_frame

    enter = convert_frame.CatchErrorsWrapper.__call__

    def marked(*args: Any, **kwargs: Any) -> Any:
        hook = sys.getprofile()
        sys.setprofile(None)
        try:
            with profiler_mark(name):
                return enter(*args, **kwargs)
        finally:
            sys.setprofile(hook)

    leave_to_python(marked)
    convert_frame.CatchErrorsWrapper.__call__ = marked  # of this process only


def mark_new_graphs(name_of: Callable[[Any], str]) -> None:
    """Mark each call of a graph that Dynamo compiles from now on. ``name_of`` gets the graph module."""
    from torch._dynamo.output_graph import OutputGraph

    call = OutputGraph.call_user_compiler

    def compile_graph(output: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
        name = name_of(gm)
        return with_mark(call(output, gm, *args, **kwargs), name)

    OutputGraph.call_user_compiler = compile_graph  # as above


def start_profile() -> Any:
    """Start a profile of the operators of all threads. Raises `RuntimeError` if one runs already."""
    import torch
    from torch._C._profiler import _ExperimentalConfig

    profile = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        experimental_config=_ExperimentalConfig(profile_all_threads=True),
    )
    profile.start()
    return profile


def stop_profile(profile: Any) -> Iterator[tuple[int, str, bool]]:
    """End a profile and yield its events: the parent's position (-1 for none), the name, whether it is an operator."""
    from torch._C._profiler import RecordScope

    profile.stop()
    left = [(-1, root) for root in reversed(profile.profiler.kineto_results.experimental_event_tree())]
    position = -1
    while left:
        parent, event = left.pop()
        position += 1
        operator = is_operator(event.name) and event.extra_fields.scope == RecordScope.FUNCTION
        yield parent, event.name, operator
        left += [(position, child) for child in reversed(event.children)]


def allocated_at_once(call: Callable[[], Any]) -> int:
    """Make a call, and return the most bytes that tensors on the CPU which it made held at once.

    torch's allocator counts them, so that two runs of one program have the same figure. What it frees of earlier
    memory does not count, nor what a library allocates by itself.
    """
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    events = (each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]")
    changes = sorted((each.start_ns(), each.nbytes()) for each in events if "CPU" in str(each.device_type()))
    return max(accumulate((size for _, size in changes), initial=0))


def is_operator(name: str) -> bool:
    """Whether an event's name is that of an operator: ``aten::add``, ``c10d::allreduce_``."""
    return _OPERATOR.match(name) is not None


@cache
def computes(name: str) -> bool:
    """Whether an event is an operator that computes: one that views a tensor or allocates one does not.

    One that may view (``aten::to``, ``aten::reshape``) calls the operator that copies, where it does.
    """
    if not is_operator(name) or name.partition("::")[2].startswith(_ALLOCATES):
        return False
    import torch

    schemas = torch._C._jit_get_schemas_for_operator(name)
    of_tensors = [each for each in schemas if each.arguments and str(each.arguments[0].type) == "Tensor"]
    return not of_tensors or not all(
        any(value.alias_info is not None and not value.alias_info.is_write for value in each.returns)
        for each in of_tensors
    )


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
