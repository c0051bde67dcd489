"""Count the operator calls of a process: how many were in graphs that Dynamo compiled, and how many Python made.

This is done in a run of its own (`explain --coverage`), under torch's profiler, so that the recorded run stays
undisturbed. An operator call outside of graphs is a leaf of the profile: an operator that calls no other. A call of a
graph counts as its nodes that compute. What torch calls while it compiles does not count.

Calls are counted by function. While a compiled call runs, Python's profiling hook puts a mark around each call of the
user's functions, and of ``forward`` methods in torch. An operator belongs to the user's innermost function within the
compiled call. If there is none, it belongs to torch's outermost ``forward``.
"""

from __future__ import annotations

import atexit
import functools
import json
import linecache
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import fx

from dynadiag.capture.code_locations import is_stdlib_or_torch
from dynadiag.recording.code_origin import original_name
from dynadiag.torch_private import operator_profile
from dynadiag.torch_private.operator_profile import profiler_mark

_CALL, _COMPILE = "dynadiag compiled call", "dynadiag compile"
_FUNCTION, _GRAPH = "dynadiag function ", "dynadiag graph "
_PARTS_OF_A_FUNCTION = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in ([^\n]+)')
_PACKAGE = str(Path(__file__).parent.parent)

Function = tuple[str, int | None, str]  # file, first line, qualified name


def count_this_process(folder: str) -> None:
    """Count from now on, and at the interpreter's end leave a file in ``folder`` if anything was called."""
    counts = OperatorCounts()
    counts.start()
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing import util  # its children skip `atexit`

        util.Finalize(None, counts.write, (folder,), exitpriority=0)
    else:
        atexit.register(counts.write, folder)


class OperatorCounts:
    """The counts of one process. torch stays changed until the process ends."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._labels: dict[CodeType, str | None] = {}
        self._functions: list[tuple[tuple[str, int, str], bool]] = []  # by number; whether it is the user's
        self._graphs: list[Counter[Function]] = []  # by number: the nodes of each graph, by function
        self._profile: Any = None
        self._calls: frozenset[CodeType] = frozenset()

    def start(self) -> None:
        """Count in all threads. Raises `RuntimeError` if the profiler runs already."""
        self._calls = operator_profile.compiled_call_codes()
        operator_profile.mark_compiles(_COMPILE)
        operator_profile.mark_new_graphs(self._name_graph)
        operator_profile.leave_to_python(self._hook_thread, self._hook())
        self._profile = operator_profile.start_profile()
        threading.setprofile(self._hook_thread)
        sys.setprofile(self._hook())

    def write(self, folder: str) -> None:
        """End counting, and write the counts to a file of this process. A forked child writes nothing."""
        if os.getpid() == self._pid:
            Path(folder, f"{self._pid}.json").write_text(json.dumps(self.stop()))

    def stop(self) -> dict[str, Any]:
        """End counting. Return the calls by function, and how many were made outside of every compiled call."""
        sys.setprofile(None)
        threading.setprofile(None)
        compiled, uncompiled, outside = self._tally()
        rows = [
            [*function, compiled[function], uncompiled[function]]
            for function in dict.fromkeys([*uncompiled, *compiled])
        ]
        return {"functions": rows, "outside": outside}

    def _hook_thread(self, _frame: FrameType, _event: str, _argument: object) -> None:
        """The first hook of a new thread. It is replaced by a hook with its own stack."""
        sys.setprofile(self._hook())

    def _hook(self) -> Callable[[FrameType, str, object], None]:
        """A hook for ``sys.setprofile`` that marks the calls of functions while a compiled call runs."""
        open_: list[tuple[FrameType, Any]] = []
        calls, labels, label = self._calls, self._labels, torch.compiler.disable(self._label)

        def hook(frame: FrameType, event: str, _argument: object) -> None:
            if event == "call":
                code = frame.f_code
                if not open_ and code not in calls:
                    return
                name = labels[code] if code in labels else label(code)
                if name is not None:
                    mark = profiler_mark(name)
                    mark.__enter__()
                    open_.append((frame, mark))
            elif event == "return" and open_ and open_[-1][0] is frame:
                open_.pop()[1].__exit__(None, None, None)

        return hook

    def _label(self, code: CodeType) -> str | None:
        """The mark of a code: None where its calls need none."""
        if code in self._calls:
            name = _CALL
        elif code.co_filename.startswith(_PACKAGE) or (
            is_stdlib_or_torch(code.co_filename) and code.co_name != "forward"
        ):
            name = None
        else:
            name = f"{_FUNCTION}{len(self._functions)}"
            place = (code.co_filename, code.co_firstlineno, code.co_qualname)
            self._functions.append((place, not is_stdlib_or_torch(code.co_filename)))
        self._labels[code] = name
        return name

    def _name_graph(self, graph: fx.GraphModule) -> str:
        """The mark of a graph, whose nodes are counted by function."""
        nodes = (node for node in graph.graph.nodes if node.op not in ("placeholder", "get_attr", "output"))
        self._graphs.append(Counter(_function_of(node.meta.get("stack_trace")) for node in nodes))
        return f"{_GRAPH}{len(self._graphs) - 1}"

    def _tally(self) -> tuple[Counter[Function], Counter[Function], int]:
        """The calls in graphs and outside of them by function, and those outside of every compiled call."""
        places, parents, operators = self._places()
        compiled, uncompiled, outside = Counter[Function](), Counter[Function](), 0
        for place in places:
            if place.graph is not None:
                compiled.update(self._graphs[place.graph])
        calls_others = [False] * len(places)
        for position in reversed(range(len(places))):
            if parents[position] >= 0 and (operators[position] or calls_others[position]):
                calls_others[parents[position]] = True
            if not operators[position] or calls_others[position] or places[position].ignored:
                continue
            if (function := places[position].function) is None:
                outside += 1
            else:
                uncompiled[function] += 1
        return compiled, uncompiled, outside

    def _places(self) -> tuple[list[_EventPlace], list[int], list[bool]]:
        """For each event of the profile: where it is, the position of its parent, and whether it is an operator."""
        places: list[_EventPlace] = []
        parents: list[int] = []
        operators: list[bool] = []
        functions = [(function_at(file, line, name), own) for (file, line, name), own in self._functions]
        for parent, name, is_operator in operator_profile.stop_profile(self._profile):
            places.append(_event_place(name, places[parent] if parent >= 0 else _OUTSIDE, functions))
            parents.append(parent)
            operators.append(is_operator)
        return places, parents, operators


@dataclass(frozen=True, slots=True)
class _EventPlace:
    """Where an event of a profile is. ``graph`` is the number of the graph that it is the call of."""

    function: Function | None = None  # None outside of compiled calls
    users: bool = False
    ignored: bool = False
    graph: int | None = None


_OUTSIDE, _IGNORED = _EventPlace(), _EventPlace(ignored=True)
_UNNAMED: Function = ("<torch>", None, "a compiled call")


def _event_place(name: str, enclosing: _EventPlace, functions: Sequence[tuple[Function, bool]]) -> _EventPlace:
    if enclosing.ignored or name in (_COMPILE, operator_profile.COMPILED_BACKWARD):
        return _IGNORED
    if name.startswith(_GRAPH):
        return _EventPlace(ignored=True, graph=int(name.removeprefix(_GRAPH)))
    if name == _CALL and enclosing.function is None:
        return _EventPlace(_UNNAMED)
    if name.startswith(_FUNCTION):
        function, users = functions[int(name.removeprefix(_FUNCTION))]
        if users or enclosing.function == _UNNAMED:
            return _EventPlace(function, users)
    return enclosing


def _function_of(stack: str | None) -> Function:
    """The function that a node of a graph belongs to: the user's innermost, or else the outermost."""
    frames = [(file, int(line), name) for file, line, name in _FRAME.findall(stack or "")]
    users = [frame for frame in frames if not is_stdlib_or_torch(frame[0])]
    return function_at(*(users or frames)[-1 if users else 0]) if frames else _UNNAMED


def function_at(file: str, line: int, name: str) -> Function:
    """Return the function of a file that a line is in. ``name`` is Python's name of it, to choose among several.

    A comprehension is part of its function. If the file cannot be read, only the name is known.
    """
    own = original_name(name).rpartition(".")[2]
    known = _functions(file)
    enclosing = [each for each in known if line in each.lines]
    found = [each for each in known if each.first == line and each.name == own]
    found = found or [each for each in enclosing if each.name == own] or enclosing
    if not found:
        return (file, None, original_name(name))
    best = max(found, key=lambda each: each.first)
    return (file, best.first, best.qualified)


@dataclass(frozen=True, slots=True)
class _FileFunction:
    """A function of a file: its first line, its names, and its lines with those of its comprehensions."""

    first: int
    name: str
    qualified: str
    lines: frozenset[int]


@functools.cache
def _functions(file: str) -> tuple[_FileFunction, ...]:
    try:
        module = compile("".join(linecache.getlines(file)), file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_nested(module)) if linecache.getlines(file) else ()


def _nested(code: CodeType) -> Iterator[_FileFunction]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    yield _FileFunction(code.co_firstlineno, code.co_name, code.co_qualname, frozenset(_own_lines(code)))
    for each in inner:
        if each.co_name not in _PARTS_OF_A_FUNCTION:
            yield from _nested(each)


def _own_lines(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line is not None)
    for each in code.co_consts:
        if isinstance(each, CodeType) and each.co_name in _PARTS_OF_A_FUNCTION:
            yield from _own_lines(each)
