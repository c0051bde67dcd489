"""Finds the calls of a compiled function in the user's code, and matches their arguments to its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dynadiag.fixes.candidate import Sources
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.problems import FixProblem

__all__ = ["CallSite", "call_sites"]

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.Lambda)


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call of the compiled function, and the arguments that were asked for, by the names of their parameters."""

    file: ParsedSource
    call: cst.Call
    arguments: dict[str, cst.Arg]


def call_sites(problem: FixProblem, sources: Sources, names: list[str]) -> Iterator[CallSite]:
    """The calls on the user's line that led to the compile, that give all these parameters."""
    parameters = _parameters(problem, sources)
    if parameters is None or not set(names) <= set(parameters):
        return
    for file, line in _lines(problem, sources):
        calls = [call for call in file.nodes(cst.Call) if file.line(call) == line]
        for call in calls:
            found = _bound(call, parameters)
            if set(names) <= found.keys() and not _in_own_scope(file, call):
                yield CallSite(file, call, {name: found[name] for name in names})
        if calls:
            return


def _parameters(problem: FixProblem, sources: Sources) -> list[str] | None:
    """The parameters of the compiled function, without the object of a method."""
    file = sources.file(problem.file)
    wanted = problem.function.rpartition(".")[2]
    found = [each for each in file.nodes(cst.FunctionDef) if each.name.value == wanted] if file is not None else []
    near = [
        each
        for each in found
        if file is not None and abs(file.line(each) - (problem.span.line or 0)) <= len(each.decorators)
    ]
    if not (near or len(found) == 1):
        return None
    names = [parameter.name.value for parameter in (near or found)[0].params.params]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _lines(problem: FixProblem, sources: Sources) -> Iterator[tuple[ParsedSource, int]]:
    """The user's lines on the way to the compiled function, the innermost first."""
    for frame in reversed(problem.stack):
        file = sources.file(frame.file)
        inside = frame.function == problem.function.rpartition(".")[2]
        if file is not None and frame.line is not None and not inside:
            yield file, frame.line


def _bound(call: cst.Call, parameters: list[str]) -> dict[str, cst.Arg]:
    found = {}
    for position, argument in enumerate(call.args):
        if argument.star:
            return {}
        name = argument.keyword.value if argument.keyword else dict(enumerate(parameters)).get(position)
        if name is None:
            return {}
        found[name] = argument
    return found


def _in_own_scope(file: ParsedSource, call: cst.Call) -> bool:
    """Whether a call is in a comprehension or a lambda: a statement in front of it does not see its variables."""
    statement = file.statement(call)
    around = file.enclosing(call, *_COMPREHENSIONS)
    simple = isinstance(statement, cst.SimpleStatementLine)
    return not simple or (around is not None and file.range(around)[0] >= file.range(statement)[0])
