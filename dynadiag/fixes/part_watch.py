"""Finds the parts of a model that torch compiles whole, in a trial of the program uncompiled.

At the first call of the model each of its modules is compiled by itself, with ``fullgraph``, at its own first call and
on the inputs that it gets there: from the outside in, and no further inside one that is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from dynadiag.fixes.call_watch import RECOMPILE_LIMIT, CallWatch
from dynadiag.fixes.isolation import silence
from dynadiag.fixes.observation import WholeParts
from dynadiag.fixes.operator_counter import tensor_operators
from dynadiag.torch_private import trial as torch_private
from dynadiag.trial.context import TRIAL
from dynadiag.trial.reachable_state import bound_object
from dynadiag.trial.reference_run import ReplayableCall, run_call

_MIN_OPERATORS = 2  # of a part that is worth its guards


class PartWatch(CallWatch):
    """Finds the parts that are whole of the first model that is called, and reports them."""

    def __init__(self) -> None:
        super().__init__()
        self._is_done = False

    def call(self, _compiled: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        model = bound_object(original)
        if self._is_done or not torch_private.is_module_call(original) or not isinstance(model, torch.nn.Module):
            return original(*args, **kwargs)
        self._is_done = True
        names = {id(module): name for name, module in model.named_modules() if name}
        finder = _Finder(names)
        try:
            return finder.run(original, args, kwargs)
        finally:
            TRIAL.send(WholeParts(tuple(names.values()), finder.whole))


class _Finder:
    """Visits the calls of modules. ``whole`` has the names of those that are one graph, the outermost alone."""

    def __init__(self, names: dict[int, str]) -> None:
        self.whole: tuple[str, ...] = ()
        self._names = dict(names)
        self._call = torch.nn.Module.__call__
        self._is_inside = False  # of a part that is whole, or too small

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        def visit(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            return self._visit(module, args, kwargs)

        self._set(visit)
        try:
            return function(*args, **kwargs)
        finally:
            self._set(self._call)

    def _visit(self, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        name = self._names.pop(id(module), None)
        if self._is_inside or name is None:
            return self._call(module, *args, **kwargs)
        visit = torch.nn.Module.__call__
        self._set(self._call)
        try:
            operators = _operators_of_one_graph(module, args, kwargs)
        finally:
            self._set(visit)
        if operators is not None and operators >= _MIN_OPERATORS:
            self.whole += (name,)
        self._is_inside = operators is not None
        try:
            return self._call(module, *args, **kwargs)
        finally:
            self._is_inside = False

    @staticmethod
    def _set(call: Callable[..., Any]) -> None:
        torch.nn.Module.__call__ = call  # all modules are called through it


def _operators_of_one_graph(module: torch.nn.Module, args: Any, kwargs: Any) -> int | None:
    """How many operators the graph of a module has on these inputs; ``None`` if torch does not make one of it. The
    module and the random number generators are left as they were.
    """
    operators = 0

    def count(graph: fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        nonlocal operators
        operators += tensor_operators(graph)
        return graph.forward

    call = ReplayableCall(module, args, kwargs)
    with silence(), torch_private.recompile_limit(RECOMPILE_LIMIT):
        compiled = torch.compile(module, backend=count, fullgraph=True)
        ran = run_call(call, compiled, call.copies(), differentiate=False)
    call.restore()
    return operators if ran.error is None else None
