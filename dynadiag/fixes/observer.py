"""Watches a trial of a fix from inside: starts the recorder, the watch of the compiled calls, and the timing.

It is a hook of `dynadiag.trial`: `install` runs in the trial's process, and the plan's task says what to watch.

The changed functions of a module get their new code in a program that has imported it. So a trial can be forked from
the program stopped at its first compiled call. What the functions did before that is not done again; the patched
program runs from its beginning at the end of a search.
"""

from __future__ import annotations

import ast
import atexit
import gc
import os
import re
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dynadiag.capture.recorder import Recorder
from dynadiag.capture.run_metadata import run_footer, run_header
from dynadiag.fixes.call_watch import CallWatch, CandidateWatch, ReferenceWatch
from dynadiag.fixes.isolation import silence
from dynadiag.fixes.observation import CompiledOperators, Observation, WarmCallTime
from dynadiag.fixes.operator_counter import OperatorCounter
from dynadiag.fixes.part_watch import PartWatch
from dynadiag.overlay_runtime import CopiedLoader, LibraryFinder, functions_in
from dynadiag.recording.journal import Journal
from dynadiag.trial.context import TRIAL
from dynadiag.trial.random_numbers import seed_generators

_WARM_SECONDS = 0.3
_MIN_WARM_CALLS = 12  # more than torch compiles a function again: each call may change what the next one guards on


def install() -> None:
    """Install the hook in the process of a trial."""
    TRIAL.on_start(_start)


def _start() -> None:
    if TRIAL.plan.task is None:
        return
    asked = Observation.from_task(TRIAL.plan.task)
    seed_generators(asked.seed)
    _write_through(asked.stderr)
    _change_modules(asked)
    recorder = _record(Path(asked.journal)) if asked.journal else None
    if asked.records:
        watch: ReferenceWatch | CandidateWatch = ReferenceWatch(asked) if asked.uncompiled else CandidateWatch(asked)
        TRIAL.call_observer = watch
        atexit.register(watch.finish)
    elif asked.parts:
        TRIAL.call_observer = PartWatch()
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
    TRIAL.send(CompiledOperators(counter.ran, sum(counter.largest.values()), counter.calls))


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


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Place = tuple[str, int]  # the qualified name, and the number among those of the name


def swap_module(name: str, copy: str) -> None:
    """Give the functions of a module that is imported the code of the file ``copy``, and run what is new at its top.

    Raises `RuntimeError` where a function has other variables of its enclosing functions, or another signature.
    """
    module = sys.modules[name]
    file = str(module.__file__)
    before, after = (_code(path, path) for path in (file, copy))
    if changed := set(_decorators(file)) - set(_decorators(copy)):
        raise RuntimeError(f"{min(changed)[0]} cannot be decorated while the program runs")
    new, positions = dict(_functions(after)), {_key(code): place for place, code in _functions(before)}
    for function in _live_functions(file):
        place = positions.get(_key(function.__code__))
        if place is not None and place in new:
            _swap(function, new[place])
    for statement in _added(file, copy):
        exec(statement, vars(module))  # noqa: S102 - a change of the module, as its import would run it


def _code(path: str, name: str) -> types.CodeType:
    return compile(Path(path).read_bytes(), name, "exec", dont_inherit=True)


def _functions(module: types.CodeType) -> Iterator[tuple[_Place, types.CodeType]]:
    """The code of each function in a module, the outer ones first, in the order of the text."""
    seen, left = Counter[str](), [module]
    while left:
        code = left.pop(0)
        inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for each in sorted(inner, key=lambda one: one.co_firstlineno):
            yield (each.co_qualname, seen[each.co_qualname]), each
            seen[each.co_qualname] += 1
            left.append(each)


def _key(code: types.CodeType) -> tuple[str, int, bytes]:
    return code.co_qualname, code.co_firstlineno, code.co_code


def _live_functions(file: str) -> Iterator[types.FunctionType]:
    for each in gc.get_objects():
        if type(each) is types.FunctionType and each.__code__.co_filename == file:
            yield each


def _swap(function: types.FunctionType, code: types.CodeType) -> None:
    old = function.__code__
    signature = (code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags & 0x0C)
    same = signature == (old.co_argcount, old.co_kwonlyargcount, old.co_posonlyargcount, old.co_flags & 0x0C)
    if not same or code.co_freevars != old.co_freevars:
        raise RuntimeError(f"{code.co_qualname} cannot be changed while the program runs")
    function.__code__ = code


def _decorators(path: str) -> list[tuple[str, str]]:
    """The functions of a file by their qualified names, each with the text of its decorators."""
    return sorted(
        (name, re.split(r"^\s*(?:async )?def ", text, maxsplit=1, flags=re.M)[0])
        for name, _, _, text in functions_in(Path(path).read_text("utf-8"))
    )


def _top(path: str) -> list[ast.stmt]:
    return ast.parse(Path(path).read_bytes()).body


def _added(file: str, copy: str) -> Iterator[types.CodeType]:
    """The statements at the top of the copy that the file does not have, each compiled where it stands."""
    before, after = _top(file), _top(copy)
    defined = {node.name for node in before if isinstance(node, _DEFINITIONS)}
    own = Counter(ast.unparse(node) for node in before if not isinstance(node, _DEFINITIONS))
    for node in after:
        if isinstance(node, _DEFINITIONS):
            is_new = node.name not in defined
        else:
            text = ast.unparse(node)
            is_new, own[text] = not own[text], max(own[text] - 1, 0)
        if is_new:
            yield compile(ast.Module([node], []), copy, "exec", dont_inherit=True)
