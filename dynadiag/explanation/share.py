"""How much of a broken function runs compiled, as recorded: its operators in graphs, and its uncompiled rest.

`explain --coverage` counts operator calls; this needs no second run, and names what has no graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dynadiag.explanation.blocks import is_last
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.identity import enclosing_function
from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.code_origin import is_resume_function, is_user_file, original_name
from dynadiag.recording.records import Break, Compile, Span

_WHOLE = (ast.Try, ast.TryStar, ast.For, ast.While)
_COMPOUND = (*_WHOLE, ast.If, ast.With)


@dataclass(frozen=True, slots=True)
class UncompiledRest:
    """The rest of a function that runs in Python: from ``line`` on. ``called`` are its own modules that it calls.

    ``was_traced``: torch traced the rest, and met no tensor operation in it.
    """

    function: str
    line: int
    operators: int  # of the function's graphs
    called: tuple[str, ...]
    was_traced: bool

    @property
    def why(self) -> str:
        """Why it runs in Python."""
        if self.was_traced:
            return "the call in which torch traced it had no tensor operation there"
        return "torch cannot go on there after this break"

    @property
    def text(self) -> str:
        """In a sentence: what is compiled, and what is not."""
        named = f" ({list_some(self.called)})" if self.called else ""
        made = f"{count(self.operators, 'operator')} of {self.function} {'runs' if self.operators == 1 else 'run'}"
        return f"{made} compiled; from line {self.line} on it runs in Python{named}."


def share_text(run: RunRecords) -> str:
    """The first function that has an uncompiled rest, in a sentence; empty where none has."""
    rests = (uncompiled_rest(item, run) for item in run.breaks if item.cause is None)
    return next((rest.text for rest in rests if rest is not None), "")


def uncompiled_rest(item: Break, run: RunRecords) -> UncompiledRest | None:
    """Return what a break leaves to Python of the function that torch compiled, where it could not go on after it.

    Where torch goes on, it compiles or skips a function that begins behind the break. None where it does, where the
    program did not get there, and where nothing follows.
    """
    compiled = next((each for each in run.compiles if each.compile_id == item.compile_id), None)
    if compiled is None or compiled.outcome != "break" or item.fatal or not is_user_file(compiled.file):
        return None
    if compiled.compile_id not in run.compiled or run.run.exit_code not in (0, None):
        return None
    line, source = _line_in(compiled, item), run.sources.get(compiled.file or "")
    if line is None or source is None or (run.end is not None and run.end.error is not None):
        return None
    if is_last(source, Span(compiled.file, line)) or any(_goes_on(compiled, run)):
        return None
    line = _first_in_block(source, line)
    alike = [each.compile_id for each in run.compiles if (each.file, each.line) == (compiled.file, compiled.line)]
    graphs = {graph.compile_id: graph.ops for graph in run.graphs if graph.stage == "dynamo"}
    operators = max((graphs.get(each, 0) for each in alike), default=0)
    met = {each.compile_id for each in run.breaks}
    was_traced = any(each.outcome == "skipped" and each.compile_id not in met for each in _others(compiled, run))
    return UncompiledRest(compiled.function, line, operators, tuple(_called(source, line)), was_traced)


def _line_in(compiled: Compile, item: Break) -> int | None:
    """The line of the compiled function at which it breaks, or calls what breaks."""
    name = compiled.function.rpartition(".")[2]
    frames = [each.line for each in item.user_stack if (each.file, each.function) == (compiled.file, name)]
    here = item.span.line if (item.span.file, item.function) == (compiled.file, compiled.function) else None
    return here or next(iter(frames), None)


def _first_in_block(source: str, line: int) -> int:
    """The line at which Python takes over: torch compiles nothing of a loop or a ``try`` around the break.

    The graph ends before the outermost of these blocks (``InstructionTranslatorBase.step``).
    """
    function = enclosing_function(source, line)
    blocks = [node for node in ast.walk(function) if isinstance(node, _WHOLE)] if function is not None else []
    around = [node for node in blocks if node.lineno < line <= (node.end_lineno or line)]
    first: ast.stmt | None = min(around, key=lambda node: node.lineno, default=None)
    while isinstance(first, _COMPOUND):
        first = first.body[0]
    return line if first is None else first.lineno


def _others(compiled: Compile, run: RunRecords) -> Iterator[Compile]:
    """The compiles of the parts of this function that begin behind a graph break."""
    alike = (each for each in run.compiles if (each.file, each.function) == (compiled.file, compiled.function))
    yield from (each for each in alike if each.line != compiled.line)


def _goes_on(compiled: Compile, run: RunRecords) -> Iterator[bool]:
    """For each function that begins in the middle of this one, that torch looked at it."""
    yield from (True for each in _others(compiled, run) if each.outcome != "skipped")
    met = {item.compile_id for item in run.breaks}
    broken = {(each.file, each.line) for each in run.compiles if each.outcome == "skipped" and each.compile_id in met}
    for skipped in run.skipped:
        name = original_name(skipped.function).rpartition(".")[2]
        is_left = (skipped.file, skipped.line) in broken
        if is_resume_function(skipped.function) and not is_left and name == compiled.function.rpartition(".")[2]:
            yield True


def _called(source: str, line: int) -> Iterator[str]:
    """The modules of its own (``self.head``) that a function calls from a line on."""
    function = enclosing_function(source, line)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)] if function is not None else []
    calls = sorted((node for node in calls if node.lineno >= line), key=lambda node: (node.lineno, node.col_offset))
    names = (ast.unparse(node.func) for node in calls if isinstance(node.func, ast.Attribute))
    yield from dict.fromkeys(name for name in names if name.startswith("self.") and name.count(".") == 1)
