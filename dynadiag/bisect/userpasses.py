"""The passes of a custom backend: the functions of the user's that it hands an FX graph to.

A custom backend is the user's code, and torch knows nothing of its parts. What we know of it is its function: the
functions that it can reach by name and that are given a graph are its passes, and skipping one is giving the
graph back as it came.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from dynadiag.torch_private import bisect as torch_private
from dynadiag.trial.runtime import TRIAL

__all__ = ["with_switched_passes"]

_TORCH = torch.__file__.removesuffix("__init__.py")


@contextlib.contextmanager
def with_switched_passes(backend: Any) -> Iterator[None]:
    """While a backend runs, the user's own functions that take a graph ask whether they are on."""
    functions = _reachable(backend) if TRIAL.asks("pass") else []
    with contextlib.ExitStack() as stack:
        for namespace, name, function in functions:
            namespace[name] = _switched(function)
            stack.callback(namespace.__setitem__, name, function)
        yield


def _reachable(backend: Any) -> list[tuple[dict[str, Any], str, Callable[..., Any]]]:
    """(namespace, name, function) of the user's functions in the module of his backend, the backend left out."""
    function = torch_private.innermost_function(backend)
    if function is None or function.__code__.co_filename.startswith(_TORCH):
        return []
    space = function.__globals__
    return [(space, n, f) for n, f in list(space.items()) if _may_be_pass(f, function)]


def _may_be_pass(value: Any, backend: Callable[..., Any]) -> bool:
    if not inspect.isfunction(value) or value is backend or hasattr(value, "_torchdynamo_orig_callable"):
        return False
    return not value.__code__.co_filename.startswith(_TORCH) and _may_give_graph(value)


def _may_give_graph(function: Callable[..., Any]) -> bool:
    """Not where it says that it gives something else (a printer of graphs, a count): no graph can stand for that."""
    given = function.__annotations__.get("return", "")
    text = given if isinstance(given, str) else getattr(given, "__name__", "") or str(given)
    return text in ("", "None", "Any") or "Graph" in text


def _switched(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        graph = args[0] if args else None
        if not isinstance(graph, (Graph, GraphModule)):
            return function(*args, **kwargs)
        code = function.__code__
        here = {"compile_id": torch_private.compile_id(), "graph": "dynamo"}
        key = f"{here['compile_id']}/backend/{function.__qualname__}"
        key += f"/{TRIAL.occurrence('pass', key)}"
        lines = [(code.co_filename, code.co_firstlineno)]
        if TRIAL.on("pass", key, lambda: {"name": function.__qualname__, "lines": lines, **here}):
            return function(*args, **kwargs)
        return graph

    return call
