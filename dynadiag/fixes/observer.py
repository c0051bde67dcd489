"""Watches a trial of a fix from inside: starts the recorder, the watch of the compiled calls, and the timing.

It is a hook of `dynadiag.trial`: `install` runs in the trial's process, and the plan's task says what to watch.
"""

from __future__ import annotations

import atexit
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dynadiag.capture.recorder import Recorder
from dynadiag.capture.run_metadata import run_footer, run_header
from dynadiag.fixes.call_watch import CallWatch, CandidateWatch, ReferenceWatch
from dynadiag.fixes.code_swap import swap_module
from dynadiag.fixes.isolation import silence
from dynadiag.fixes.observation import CompiledOperators, Observation, WarmCallTime
from dynadiag.overlay_runtime import CopiedLoader, LibraryFinder
from dynadiag.recording.journal import Journal
from dynadiag.torch_private import trial as torch_private
from dynadiag.trial.context import TRIAL


class OperatorCounter:
    """Counts from now on, for the rest of the process.

    ``ran`` counts each operator as often as its graph is called. ``largest`` is the largest graph of each function.
    """

    def __init__(self) -> None:
        self.ran = 0
        self.largest: dict[CodeType, int] = {}
        torch_private.wrap_call_user_compiler(self._compile)

    def _compile(self, inner: Callable[..., Any], output: Any, graph: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        operators = tensor_operators(graph)
        compiled = inner(output, graph, *args, **kwargs)
        if torch_private.is_hop_compile():
            return compiled
        code = torch_private.compiled_code(output)
        self.largest[code] = max(operators, self.largest.get(code, 0))

        def counted(*inputs: Any) -> Any:
            self.ran += operators
            return compiled(*inputs)

        return counted


def tensor_operators(module: fx.GraphModule) -> int:
    """How many nodes of a graph, and of the graphs in it, compute a tensor. Those on symbols of sizes and numbers come
    and go with the symbols.
    """
    nodes = [node for each in module.modules() if isinstance(each, fx.GraphModule) for node in each.graph.nodes]
    values = [node.meta.get("example_value") for node in nodes if node.op.startswith("call_")]
    return sum(any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)) for value in values)


_WARM_SECONDS = 0.3
_MIN_WARM_CALLS = 12  # more than torch compiles a function again: each call may change what the next one guards on


def install() -> None:
    """Install the hook in the process of a trial."""
    TRIAL.on_start(_start)


def _start() -> None:
    if TRIAL.plan.task is None:
        return
    asked = Observation.from_task(TRIAL.plan.task)
    _seed(asked.seed)
    _write_through(asked.stderr)
    _change_modules(asked)
    recorder = _record(Path(asked.journal)) if asked.journal else None
    if asked.records:
        watch: ReferenceWatch | CandidateWatch = ReferenceWatch(asked) if asked.uncompiled else CandidateWatch(asked)
        TRIAL.call_observer = watch
        atexit.register(watch.finish)
    elif asked.time_calls:
        last = _LastCall()
        TRIAL.call_observer = last
        atexit.register(last.measure)
        atexit.register(_send_operators, OperatorCounter())  # before the last call is repeated
    if recorder is not None:
        atexit.register(_end_recording, recorder, time.time())  # runs first: what is registered last does


def _change_modules(asked: Observation) -> None:
    """Load changed copies in the place of modules of packages."""
    loaders = {name: partial(CopiedLoader, copy=copy) for name, copy in asked.changed_modules.items()}
    for name in sorted(loaders.keys() & sys.modules.keys()):  # the trial begins at the program's first compiled call
        swap_module(name, asked.changed_modules[name])
    sys.meta_path.insert(0, LibraryFinder(loaders))


def _send_operators(counter: OperatorCounter) -> None:
    TRIAL.send(CompiledOperators(counter.ran, sum(counter.largest.values())))


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _write_through(stderr: str | None) -> None:
    """Let each print appear at once, so that both streams are in one order. ``stderr`` gets a file of its own."""
    if stderr is not None:
        descriptor = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]  # a TextIOWrapper at the start


def _record(path: Path) -> Recorder:
    def begin() -> Journal:
        own = path if not path.exists() else path.with_name(f"{path.name}-{os.getpid()}")
        journal = Journal.create(own)
        journal.append({"dynadiag_run": run_header(None)})
        return journal

    recorder = Recorder(begin)
    recorder.journal()
    recorder.start()
    return recorder


def _end_recording(recorder: Recorder, began: float) -> None:
    recorder.note("end", run_footer(began))
    recorder.stop()


class _LastCall(CallWatch):
    """Remembers the program's last compiled call, and measures it when the program has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._last: Callable[[], Any] | None = None

    def call(self, compiled: Callable[..., Any], _original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        result = compiled(*args, **kwargs)
        mode = torch.is_grad_enabled()
        self._last = lambda: _with_mode(mode, compiled, args, kwargs)
        return result

    def measure(self) -> None:
        """Report the shortest time of a warm call."""
        if self._last is None:
            return
        with silence(), suppress(Exception):  # the arguments may be freed or changed: then there is no figure
            self._inside = True
            self._last()
            best, end = float("inf"), time.perf_counter() + _WARM_SECONDS
            clock, calls = _clock(), 0
            while time.perf_counter() < end or calls < _MIN_WARM_CALLS:
                began = clock()
                self._last()
                best, calls = min(best, clock() - began), calls + 1
            TRIAL.send(WarmCallTime(best))


def _clock() -> Callable[[], float]:
    """The clock for one call: this thread's time, which other work on the machine does not lengthen.

    A GPU works while the thread waits for it, so there it is the time that passes.
    """
    if not torch.cuda.is_initialized():
        return time.thread_time

    def passed() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return passed


def _with_mode(mode: bool, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with torch.set_grad_enabled(mode):
        return function(*args, **kwargs)
