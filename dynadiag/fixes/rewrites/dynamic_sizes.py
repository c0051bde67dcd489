"""A size that changes from call to call: marked as dynamic where the function is called, or for all of its compiles.

This is right because a mark, or ``dynamic=True``, changes no value: it makes torch compile with a symbol from the first
call on. If the code needs the number (a loop over it), torch refuses or recompiles all the same, and the proof sees
that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.call_sites import CallSite, argument_name, call_sites

__all__ = ["candidates", "dynamic_compile"]

_SIZE = re.compile(r"^L\['(\w+)'\]\.size\(\)\[(\d+)\]$")
_WHY = "torch compiles with a symbol for the size, and no value changes"


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """Marks in front of the call, then ``dynamic=True``."""
    sizes = [found for source in (problem.source, *problem.also) if (found := _SIZE.match(source or ""))]
    if problem.kind != "recompile" or not sizes:
        return
    wanted = [(found[1], int(found[2])) for found in sizes]
    names = list(dict.fromkeys(name for name, _ in wanted if argument_name(f"L['{name}']")))
    for site in call_sites(problem, sources, names):
        for function in ("mark_dynamic", "maybe_mark_dynamic"):
            edit = _marks(site, wanted, function)
            if edit is not None:
                yield Candidate(f"mark the size with `torch._dynamo.{function}`", "argument", (edit,), _WHY)
    file = sources.file(problem.file)
    edit = dynamic_compile(file) if file is not None else None
    if edit is not None:
        yield Candidate("compile with `dynamic=True`", "argument", (edit,), _WHY)


def _marks(site: CallSite, wanted: list[tuple[str, int]], function: str) -> Edit | None:
    """Lines in front of the statement of a call; ``None`` if an argument has no name there."""
    file, statement = site.file, site.file.statement(site.call)
    lines = []
    for name, dimension in wanted:
        value = site.arguments[name].value
        if not isinstance(value, (cst.Name, cst.Attribute)):
            return None
        lines.append(f"torch._dynamo.{function}({file.code(value)}, {dimension})")
    if not file.imports("torch"):
        return None
    text = "".join(f"{file.indent(statement)}{line}{file.newline}" for line in dict.fromkeys(lines))
    return file.insert_line(file.line(statement), text)


def dynamic_compile(file: ParsedSource) -> Edit | None:
    """The edit that gives ``dynamic=True`` to the only `torch.compile` of a file; ``None`` if there are others, or if
    this one says already whether it is dynamic.
    """
    found = _compile_calls(file)
    if len(found) != 1:
        return None
    call = found[0]
    if not isinstance(call, cst.Call):
        return file.replace(call, f"{file.code(call)}(dynamic=True)")
    if any(argument.keyword is not None and argument.keyword.value == "dynamic" for argument in call.args):
        return None
    return _with_argument(file, call, "dynamic=True")


def _compile_calls(file: ParsedSource) -> list[cst.CSTNode]:
    calls: list[cst.CSTNode] = [call for call in file.nodes(cst.Call) if file.code(call.func) == "torch.compile"]
    bare = [each.decorator for each in file.nodes(cst.Decorator) if file.code(each.decorator) == "torch.compile"]
    return [*calls, *bare]


def _with_argument(file: ParsedSource, call: cst.Call, text: str) -> Edit:
    end = file.range(call.args[-1])[1] if call.args else file.range(call)[1] - 1
    return Edit(file.name, end, end, f", {text}" if call.args else text)
