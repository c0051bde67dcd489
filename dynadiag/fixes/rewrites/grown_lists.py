"""A list of tensors that is longer at each call, and is only stacked or concatenated: that is done in front of the
compiled part, and the size is marked.

This is right because the part gets the tensor that it made itself before. torch compiles for each length of a list, and
for a size with a mark it makes a symbol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.call_sites import compiled_function
from dynadiag.fixes.rewrites.compiled_methods import CompiledPart, compiled_part, plain_parameters
from dynadiag.fixes.rewrites.dynamic_sizes import MARKS
from dynadiag.recording.torch_text.sources import argument_of

_JOINED = ("torch.stack", "torch.cat", "torch.concat")


@dataclass(frozen=True, slots=True)
class _Joined:
    """A parameter, the calls that join its tensors, and the name that they are assigned to, if there is one call."""

    parameter: cst.Param
    calls: list[cst.Call]
    name: str
    line: cst.SimpleStatementLine | None  # which only assigns the name
    dimension: int


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The list joined in front of the compiled part, with one of the marks."""
    names = {argument_of(source) for source in (problem.source, *problem.also) if source is not None}
    file, function = sources.file(problem.file), compiled_function(problem, sources)
    if problem.kind != "recompile" or file is None or function is None or plain_parameters(function) is None:
        return
    joined = [_joined(file, function, each) for each in function.params.params if each.name.value in names]
    part, known = compiled_part(file, function, sources), [each for each in joined if each is not None]
    if part is None or len(known) != len(joined) or not known:
        return
    shown = " and ".join(f"`{each.parameter.name.value}`" for each in known)
    for mark in MARKS:
        yield Candidate(
            f"make one tensor of {shown} in front of the compiled part, and mark its size with `torch._dynamo.{mark}`",
            "source",
            (*_edits(file, function, known, part, mark), *part.more),
            "the compiled part gets the tensor that it made of the list, and for its size torch makes a symbol",
            whole_calls=(function.name.value,),
            moved_out=sum(len(each.calls) for each in known),
        )


def _joined(file: ParsedSource, function: cst.FunctionDef, parameter: cst.Param) -> _Joined | None:
    """How the function joins the tensors of a list; ``None`` if it does anything else with the list."""
    name = parameter.name.value
    uses = [each for each in file.nodes(cst.Name, function.body) if each.value == name]
    arguments = [above for each in uses if (above := file.parent(each)) is not None]
    calls = [call for each in arguments if isinstance(call := file.parent(each), cst.Call)]
    texts = {file.code(call) for call in calls}
    if len(calls) != len(uses) or len(texts) != 1 or parameter.default is not None:
        return None
    call = calls[0]
    rest = [each.value for each in call.args[1:]]
    known = file.code(call.func) in _JOINED and call.args[0] in arguments and call.args[0].keyword is None
    if not known or len(rest) > 1 or not all(isinstance(each, cst.Integer) for each in rest):
        return None
    if any(_may_change_it(statement) for statement in _statements_before(file, function, call)):
        return None
    dimension = int(file.code(rest[0])) if rest else 0
    line = file.statement(call)
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    target = statement.targets[0].target if isinstance(statement, cst.Assign) and statement.value is call else None
    if len(calls) == 1 and isinstance(target, cst.Name) and isinstance(line, cst.SimpleStatementLine):
        assigned = [each for each in file.nodes(cst.Name, function) if each.value == target.value]
        at_top = file.parent(line) is function.body and len(function.body.body) > 1
        if at_top and assigned[0] is target:  # nothing before it has the name
            return _Joined(parameter, calls, target.value, line, dimension)
    return _Joined(parameter, calls, name, None, dimension)


def _statements_before(
    file: ParsedSource, function: cst.FunctionDef, call: cst.Call
) -> Iterator[cst.BaseSmallStatement]:
    """The statements of the function in front of the one that joins the list."""
    for line in file.nodes(cst.SimpleStatementLine, function.body):
        if line is file.statement(call):
            return
        yield from line.body


def _may_change_it(statement: cst.BaseSmallStatement) -> bool:
    """Whether the statement may change a list that it knows by another name: `self.memory.append(x)`."""
    if isinstance(statement, cst.Assign):
        return not all(isinstance(each.target, (cst.Name, cst.Tuple)) for each in statement.targets)
    called = isinstance(statement, cst.Expr) and not isinstance(statement.value, cst.SimpleString)
    return called or isinstance(statement, (cst.AugAssign, cst.Del))


def _edits(
    file: ParsedSource, function: cst.FunctionDef, joined: list[_Joined], part: CompiledPart, mark: str
) -> Iterator[Edit]:
    lines, names = [], {each.parameter.name.value: each.name for each in joined}
    for each in joined:
        lines += [
            f"{each.name} = {file.code(each.calls[0])}",
            f"torch._dynamo.{mark}({each.name}, {each.dimension})",
        ]
        if each.line is not None:
            yield file.replace_lines(each.line, each.line, "")
        for call in each.calls if each.line is None else ():
            yield file.replace(call, each.name)
        if each.line is not None:
            yield file.replace(each.parameter.name, each.name)
        if each.parameter.annotation is not None:
            yield file.replace(each.parameter.annotation.annotation, "torch.Tensor")
    parameters = [each.name.value for each in function.params.params]
    given = ", ".join(names.get(each, each) for each in parameters if each != "self")
    yield from part.around(file, function, [*lines, f"return {part.called}({given})"])
