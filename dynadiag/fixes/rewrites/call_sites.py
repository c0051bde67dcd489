"""Finds the calls of a compiled function in the user's code, and matches their arguments to its parameters."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dynadiag.fixes.candidate import Sources
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.problems import FixProblem

_MORE = tuple(f"args[{position}]" for position in range(8))
_LIBRARY = re.compile(rf"^(?:(?:torch|nn|F|np|math)\.|(?:{'|'.join(dir(builtins))})$)")  # what it calls is no program's
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.Lambda)


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call of the compiled function, and the arguments that were asked for, by the names of their parameters."""

    file: ParsedSource
    call: cst.Call
    arguments: dict[str, cst.Arg]

    @property
    def mapping(self) -> cst.Name | None:
        """The name behind the ``**`` of the call, which holds the arguments that are not there by themselves."""
        found = [each.value for each in self.call.args if each.star == "**"]
        return found[0] if len(found) == 1 and isinstance(found[0], cst.Name) else None


def call_sites(problem: FixProblem, sources: Sources, names: list[str]) -> Iterator[CallSite]:
    """The calls on the user's line that led to the compile, that give all these parameters. Of a library's function
    only the line is known, so a call that gives them by its ``**`` counts as well, if it is the function's own: what a
    library's function calls behind a break has other arguments.
    """
    parameters = _parameters(problem, sources)
    if parameters is None or (problem.file is not None and not set(names) <= set(parameters)):
        return
    for file, line in _lines(problem, sources):
        own = (call for call in file.nodes(cst.Call) if not _LIBRARY.match(file.code(call.func)))
        calls = [call for call in own if file.line(call) == line]
        for call in calls:
            found = _bound(call, parameters)
            site = CallSite(file, call, {name: found[name] for name in names if name in found})
            is_own = [(frame.file, frame.line) for frame in problem.stack[-2:-1]] == [(file.name, line)]
            by_mapping = problem.file is None and site.mapping is not None and is_own
            given = all(name in site.arguments or (by_mapping and name.isidentifier()) for name in names)
            if given and not _in_own_scope(file, call):
                yield site
        if calls:
            return


def calling_file(problem: FixProblem, sources: Sources) -> ParsedSource | None:
    """The file of the compiled function, or of the line that calls it if that is a library's."""
    return sources.file(problem.file) or next((file for file, _ in _lines(problem, sources)), None)


def _parameters(problem: FixProblem, sources: Sources) -> list[str] | None:
    """The parameters of the compiled function, without the object of a method. Of a library's function, and behind
    those of ``*args``, they are ``args[0]`` and so on.
    """
    if problem.file is None:
        return list(_MORE)
    function = compiled_function(problem, sources)
    if function is None:
        return None
    parameters = function.params
    names = [parameter.name.value for parameter in parameters.params]
    more = _MORE if isinstance(parameters.star_arg, cst.Param) and parameters.star_arg.name.value == "args" else ()
    file = sources.file(problem.file)
    is_method = file is not None and isinstance(file.enclosing(function, cst.ClassDef, cst.FunctionDef), cst.ClassDef)
    is_static = any(
        isinstance(each.decorator, cst.Name) and each.decorator.value == "staticmethod" for each in function.decorators
    )
    return [*(names[1:] if is_method and not is_static else names), *more]


def compiled_function(problem: FixProblem, sources: Sources) -> cst.FunctionDef | None:
    """The compiled function in the file of the problem; of several of its name the one around the problem's line."""
    file, wanted = sources.file(problem.file), problem.function.rpartition(".")[2]
    found = [each for each in file.nodes(cst.FunctionDef) if each.name.value == wanted] if file is not None else []
    around = [each for each in found if file is not None and _spans(file, each, problem.span.line or 0)]
    return (around or found)[-1] if around or len(found) == 1 else None


def _spans(file: ParsedSource, function: cst.FunctionDef, line: int) -> bool:
    """Return whether a line belongs to a function. A resume function begins at the line of its break."""
    return file.line(function) - len(function.decorators) <= line <= file.end_line(function)


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
        if argument.star == "**":
            continue
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
