"""Hooks in the process of a trial: which graph of the program is compiled or called when it fails.

If the plan records `GRAPH_CALLS`, each begin and end of a call is reported, and exceptions too, even if the program
catches them. If the plan has a task, the program runs up to one call of one graph. There it stops, and the reduction
begins.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from dynadiag.minify.captured_call import CapturedCall, ProgramThreads
from dynadiag.minify.reduction_task import (
    COMPARED_GRAPH_CALLS,
    FAILED_LOWERING,
    GRAPH_CALLS,
    INDUCTOR_RANDOM,
    KERNEL_REACHED,
    LOWERING_STARTED,
    PASSES_AT_KERNEL,
    ReductionTask,
)
from dynadiag.minify.torch_settings import TorchSnapshot
from dynadiag.torch_private import minify as torch_private
from dynadiag.torch_private import trial as trial_private
from dynadiag.torch_private.kernel_codegen import labelled_names, wrap_kernel_compile
from dynadiag.torch_private.pattern_registrations import track_patterns
from dynadiag.trial.accuracy import call_and_compare
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import TrialEnded, run_facts
from dynadiag.trial.outcome import Decision
from dynadiag.trial.rank import this_rank
from dynadiag.trial.signature import signature_of
from dynadiag.trial.typed_json import dump, load

_PACKAGES_ROOT = Path(__file__).parent.parent.parent
_MAX_REPORTS = 2000  # begins and ends to report; a failure after more calls counts as one of the program itself


@dataclass(slots=True)
class _State:
    graphs: int = 0
    reports: int = 0
    comparing: str | None = None  # the call that is being compared: graph and call number
    open_backwards: list[_CallReport] = field(default_factory=list)  # the calls whose backward pass is running
    task: ReductionTask | None = None
    snapshot: TorchSnapshot | None = None
    threads: ProgramThreads | None = None


_state = _State()


def install() -> None:
    """Install the hooks in torch. Call it once per process."""
    trial_private.wrap_call_user_compiler(_call_user_compiler)
    torch_private.wrap_run_backward(_run_backward)
    torch_private.wrap_run_node(_report_lowering, _report_failed_lowering)
    wrap_kernel_compile(_report_kernel)
    torch_private.track_libraries()
    track_patterns()
    TRIAL.on_start(_start)


def _report_lowering(node: Any) -> None:
    """Report each operator before its lowering: after a crash, the last one is the suspect."""
    if LOWERING_STARTED in TRIAL.plan.record:
        TRIAL.send(Decision(LOWERING_STARTED, node.name, " ".join(labelled_names(node))))


def _report_failed_lowering(node: Any) -> None:
    """Report the nodes of the graph from which an operator came whose lowering failed."""
    for name in labelled_names(node) if FAILED_LOWERING in TRIAL.plan.record else ():
        TRIAL.send(Decision(FAILED_LOWERING, name, name))


def _report_kernel() -> None:
    """Report the first kernel, or end the trial there: compiling it takes most of the time of a small graph."""
    if KERNEL_REACHED in TRIAL.plan.record and TRIAL.occurrence(KERNEL_REACHED, "") == 0:
        TRIAL.send(Decision(KERNEL_REACHED, KERNEL_REACHED, KERNEL_REACHED))
    if PASSES_AT_KERNEL in TRIAL.plan.record:
        TRIAL.send(TrialEnded(None, run_facts()))
        os._exit(0)


def _start() -> None:
    _state.graphs = 0
    _state.task = load(TRIAL.plan.task, ReductionTask) if TRIAL.plan.task else None
    if COMPARED_GRAPH_CALLS in TRIAL.plan.record and INDUCTOR_RANDOM not in TRIAL.plan.record:
        trial_private.use_eager_random_numbers()
    if _state.task is not None:
        _state.snapshot = TorchSnapshot.take()
        _state.threads = _keep_one_thread(_state.task.threads)


def _keep_one_thread(count: int) -> ProgramThreads:
    """Keep torch at one thread: a process that ran a parallel region cannot fork safely. The trials set the others."""
    threads = ProgramThreads(count, torch.set_num_threads)
    torch.set_num_threads(1)
    torch.set_num_threads = threads.note
    torch.get_num_threads = lambda: threads.count
    return threads


def _call_user_compiler(inner: Callable[..., Any], output_graph: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
    number, task = _state.graphs, _state.task
    _state.graphs += 1
    if task is None and not _reports_calls():
        return inner(output_graph, gm, *args, **kwargs)
    backend, before = output_graph.compiler_fn, torch_private.copy_graph_module(gm)
    with _report_call("compile", number, 0):
        try:
            compiled = inner(output_graph, gm, *args, **kwargs)
        except Exception as error:
            if not torch_private.reaches_program(error):
                _state.graphs = number  # Dynamo starts again here; with uncompiled graphs it would not
            raise
    graph = _Graph(number, before, compiled, backend, torch_private.is_full_graph(output_graph))
    return functools.partial(_call_compiled, graph)


@dataclass(slots=True)
class _Graph:
    number: int
    module: GraphModule
    compiled: Callable[..., Any]
    backend: Any
    full: bool
    calls: itertools.count[int] = field(default_factory=itertools.count)


def _call_compiled(graph: _Graph, *args: Any) -> Any:
    call = next(graph.calls)
    task = _state.task
    if task is not None and task.is_at(graph.number, call, this_rank()):
        _state.task = None
        assert _state.snapshot is not None
        assert _state.threads is not None
        capture = CapturedCall(graph.module, args, graph.backend, _state.snapshot, _state.threads, graph.full)
        _reduce_and_exit(capture, task)
    with _report_call("run", graph.number, call):
        result = (
            _compare_call(graph, call, args) if COMPARED_GRAPH_CALLS in TRIAL.plan.record else graph.compiled(*args)
        )
    if _reports_calls():
        _watch_backward(graph.number, call, result)
    return result


def _reduce_and_exit(capture: CapturedCall, task: ReductionTask) -> NoReturn:
    """Load the reducer and run it. The program does not run again, so our minifier may take the place of its own."""
    for name in [n for n in sys.modules if n == "minifier" or n.startswith("minifier.")]:
        del sys.modules[name]
    sys.path.insert(0, str(_PACKAGES_ROOT))
    from dynadiag.minify.reducer import reduce_and_exit  # only now: it imports minifier

    reduce_and_exit(capture, task)


def _compare_call(graph: _Graph, call: int, args: tuple[Any, ...]) -> Any:
    _state.comparing = f"{graph.number} {call}"
    try:
        return call_and_compare(graph.compiled, graph.module, args, {}, values=INDUCTOR_RANDOM not in TRIAL.plan.record)
    finally:
        _state.comparing = None


def _watch_backward(number: int, call: int, result: Any) -> None:
    told = _report_call("backward", number, call)

    def begin(_: Any) -> None:
        _state.open_backwards.append(told)
        told.__enter__()

    def end(*_: Any) -> None:
        if told in _state.open_backwards:
            _state.open_backwards.remove(told)
            told.__exit__()

    for node in torch_private.backward_nodes(pytree.tree_leaves(result)):
        node.register_prehook(begin)
        node.register_hook(end)


def _run_backward(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Watch a backward pass. The hooks of its nodes report its begin; exceptions are caught here."""
    before = len(_state.open_backwards)
    try:
        return inner(*args, **kwargs)
    except Exception as error:
        if _state.comparing is not None:
            _CallReport(f"backward {_state.comparing}").__enter__()
        while len(_state.open_backwards) > before:
            _state.open_backwards.pop().__exit__(type(error), error)
        raise


def _reports_calls() -> bool:
    return GRAPH_CALLS in TRIAL.plan.record or COMPARED_GRAPH_CALLS in TRIAL.plan.record


class _CallReport:
    """Reports the begin of a call, and its end or its exception."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._send("begin")

    def __exit__(self, kind: Any = None, error: Any = None, *_: Any) -> None:
        if error is None:
            self._send("end")
        else:
            self._send(
                "raise" if torch_private.reaches_program(error) else "break", dump(signature_of(error, TRIAL.plan.rung))
            )

    def _send(self, mark: str, signature: str | None = None) -> None:
        if _reports_calls() and _state.reports < _MAX_REPORTS:
            _state.reports += 1
            TRIAL.send(Decision(GRAPH_CALLS, f"{mark} {self._name}", self._name, target=signature))


def _report_call(phase: str, number: int, call: int) -> _CallReport:
    return _CallReport(f"{phase} {number} {call}")
