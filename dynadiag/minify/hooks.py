"""Watches the compiled graphs of a program in the process of a trial: which is compiled or called when it fails.

A plan that records `CALLS` has each begin and end told, and what was raised instead, also where the program catches it.
A plan with a task has the program run up to one call of one graph; there the reduction begins, and the program goes no
further.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dynadiag.minify.reducer import reduce_here
from dynadiag.minify.settings import Snapshot
from dynadiag.minify.signs import BEGUN, CALLS, COMPARED_CALLS, ORIGINS, OWN_NUMBERS
from dynadiag.minify.task import Capture, Task
from dynadiag.torch_private import minify as torch_private
from dynadiag.torch_private import trial as trial_private
from dynadiag.torch_private.generated import names_in_graph
from dynadiag.torch_private.patterns import note_patterns
from dynadiag.trial.accuracy import compared_call
from dynadiag.trial.failure import of_exception
from dynadiag.trial.runtime import TRIAL

__all__ = ["install"]

_TOLD = 2000  # begins and ends; a failure after more calls than that is taken for one of the program's own


@dataclass(slots=True)
class _State:
    graphs: int = 0
    told: int = 0
    comparing: str | None = None  # the call, by graph and number, that is compared just now
    differentiated: list[_Told] = field(default_factory=list)  # the calls whose backward pass has begun
    task: Task | None = None
    before: Snapshot | None = None


_state = _State()


def install() -> None:
    """Puts the hooks into torch, once a process."""
    torch_private.wrap_call_user_compiler(_call_user_compiler)
    torch_private.wrap_run_backward(_run_backward)
    torch_private.wrap_run_node(_begun, _not_lowered)
    torch_private.note_libraries()
    note_patterns()
    TRIAL.on_start(_start)


def _begun(node: Any) -> None:
    """In a trial of the whole graph, each operator before it is lowered: what kills its process tells of none."""
    if BEGUN in TRIAL.plan.record:
        TRIAL.send("point", group=BEGUN, key=node.name, name=" ".join(names_in_graph(node)))


def _not_lowered(node: Any) -> None:
    """In a trial of a graph by itself, the nodes of it that the failing operator came from."""
    for name in names_in_graph(node) if ORIGINS in TRIAL.plan.record else ():
        TRIAL.send("point", group=ORIGINS, key=name, name=name)


def _start() -> None:
    _state.graphs = 0
    _state.task = Task.from_json(json.loads(TRIAL.plan.task)) if TRIAL.plan.task else None
    if COMPARED_CALLS in TRIAL.plan.record and OWN_NUMBERS not in TRIAL.plan.record:
        trial_private.same_random_numbers()
    if _state.task is not None:
        _state.before = Snapshot.take()
        _stay_with_one_thread(_state.task)


def _stay_with_one_thread(task: Task) -> None:
    """The program's own wish is kept for the trials: a process that ran a parallel region cannot be forked safely."""

    def note(count: int) -> None:
        task.threads, task.threads_asked = count, True

    torch.set_num_threads(1)
    task.set_threads = torch.set_num_threads
    torch.set_num_threads = note
    torch.get_num_threads = lambda: task.threads


def _call_user_compiler(inner: Callable[..., Any], output_graph: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
    number, task = _state.graphs, _state.task
    _state.graphs += 1
    if task is None and not _watched():
        return inner(output_graph, gm, *args, **kwargs)
    backend, before = output_graph.compiler_fn, torch_private.plain_copy(gm)
    with _told("compile", number, 0):
        try:
            compiled = inner(output_graph, gm, *args, **kwargs)
        except Exception as error:
            if not torch_private.is_failure(error):
                _state.graphs = number  # Dynamo starts anew, as it does not where the graphs are run uncompiled
            raise
    graph = _Graph(number, before, compiled, backend, torch_private.is_full_graph(output_graph))
    return functools.partial(_called, graph)


@dataclass(slots=True)
class _Graph:
    number: int
    module: torch.fx.GraphModule
    compiled: Callable[..., Any]
    backend: Any
    full: bool
    calls: itertools.count[int] = field(default_factory=itertools.count)


def _called(graph: _Graph, *args: Any) -> Any:
    call = next(graph.calls)
    task = _state.task
    if task is not None and (task.graph, task.call) == (graph.number, call):
        _state.task = None
        assert _state.before is not None
        reduce_here(Capture(graph.module, args, graph.backend, _state.before, graph.full), task)
    with _told("run", graph.number, call):
        result = _compared(graph, call, args) if COMPARED_CALLS in TRIAL.plan.record else graph.compiled(*args)
    if _watched():
        _watch_backward(graph.number, call, result)
    return result


def _compared(graph: _Graph, call: int, args: tuple[Any, ...]) -> Any:
    _state.comparing = f"{graph.number} {call}"
    try:
        return compared_call(graph.compiled, graph.module, args, {}, values=OWN_NUMBERS not in TRIAL.plan.record)
    finally:
        _state.comparing = None


def _watch_backward(number: int, call: int, result: Any) -> None:
    told = _told("backward", number, call)

    def begin(_: Any) -> None:
        _state.differentiated.append(told)
        told.__enter__()

    def end(*_: Any) -> None:
        if told in _state.differentiated:
            _state.differentiated.remove(told)
            told.__exit__()

    for node in torch_private.backward_nodes(pytree.tree_leaves(result)):
        node.register_prehook(begin)
        node.register_hook(end)


def _run_backward(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A backward pass of the program's, or of a comparison. Its nodes tell that they began, not what they raised."""
    before = len(_state.differentiated)
    try:
        return inner(*args, **kwargs)
    except Exception as error:
        if _state.comparing is not None:
            _Told(f"backward {_state.comparing}").__enter__()
        while len(_state.differentiated) > before:
            _state.differentiated.pop().__exit__(type(error), error)
        raise


def _watched() -> bool:
    return CALLS in TRIAL.plan.record or COMPARED_CALLS in TRIAL.plan.record


class _Told:
    """Tells the begin, and the end, or what was raised instead."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._send("begin")

    def __exit__(self, kind: Any = None, error: Any = None, *_: Any) -> None:
        if error is None:
            self._send("end")
        else:
            self._send("raise" if torch_private.is_failure(error) else "break", json.dumps(_signature(error)))

    def _send(self, mark: str, signature: str | None = None) -> None:
        if _watched() and _state.told < _TOLD:
            _state.told += 1
            TRIAL.send("point", group=CALLS, key=f"{mark} {self._name}", name=self._name, target=signature)


def _signature(error: BaseException) -> dict[str, Any]:
    return of_exception(error, TRIAL.plan.rung).to_json()


def _told(phase: str, number: int, call: int) -> _Told:
    return _Told(f"{phase} {number} {call}")
