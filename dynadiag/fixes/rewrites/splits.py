"""Splits a function (also one inside another), or `forward` of a model, that breaks before its first operator. The call
that breaks then runs before what is compiled.

Right because the same calls are made in the same order, and nothing leaves the graph: torch compiled no operator in
front of the break, and the call at the break runs uncompiled in any case. The proof compares calls of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.compiled_methods import decorator_of_model, plain_parameters
from dynadiag.fixes.rewrites.outer_contexts import has_long_text, is_read

_WHY = "the same calls are made in the same order, and torch compiled nothing in front of them"
_STAYS = (cst.Return, cst.Yield, cst.Await, cst.Global, cst.Nonlocal, cst.Del, cst.NamedExpr)
_LOOKS = ("locals", "vars", "super", "eval", "exec")  # what such a call sees is the frame
# In these a call may be made later, more than once, or never.
_LATER = (
    cst.BooleanOperation,
    cst.IfExp,
    cst.Lambda,
    cst.ListComp,
    cst.SetComp,
    cst.DictComp,
    cst.GeneratorExp,
    cst.FunctionDef,
)


@dataclass(frozen=True, slots=True)
class _Split:
    """A function, the statements in front, and the call that breaks: that of the last of them, or a value in the first
    of the others, which gets a name.
    """

    file: ParsedSource
    function: cst.FunctionDef
    body: Sequence[cst.BaseStatement]
    first: int  # how many statements run in front
    call: cst.Call
    name: str | None

    @property
    def arguments(self) -> list[str]:
        """What the rest reads of the parameters, and of what is made in front."""
        read = {name.value for each in self.body[self.first :] for name in self.file.nodes(cst.Name, each)}
        made = [name.value for each in self.body[: self.first] for name in _targets(self.file, each)]
        own = [parameter.name.value for parameter in self.function.params.params]
        return [*(name for name in dict.fromkeys([*own, *made]) if name in read), *([self.name] if self.name else [])]

    def head(self, indent: str) -> str:
        """The lines that run in front."""
        value = f"{indent}{self.name} = {self.file.code(self.call)}{self.file.newline}" if self.name else ""
        return (self._lines(self.body[: self.first], indent) if self.first else "") + value

    def rest(self, indent: str) -> str:
        """The lines that are compiled."""
        return self._lines(self.body[self.first :], indent)

    def _lines(self, statements: Sequence[cst.BaseStatement], indent: str) -> str:
        start = self.file.insert_line(self.file.line(statements[0]), "").start
        end = self.file.insert_line(self.file.end_line(statements[-1]) + 1, "").start
        text, cut = self.file.text[start:end], len(self.file.indent(statements[0]))
        first, last = (place - start for place in self.file.range(self.call))
        if self.name is not None and 0 <= first < len(text):
            text = text[:first] + self.name + text[last:]
        return "".join(f"{indent}{line[cut:]}" if line.strip() else line for line in text.splitlines(keepends=True))


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The function without its first calls, and another one that makes them and calls it."""
    file = sources.file(problem.file)
    if file is None or problem.kind != "break" or not problem.nothing_before:
        return
    split = _split_at(file, problem)
    made = _compiled_by_decorator(split) if split is not None else None
    if split is not None and made is None:
        owner = file.enclosing(split.function, cst.ClassDef, cst.FunctionDef)
        if isinstance(owner, cst.ClassDef):
            made = _compiled_by_method(split, sources)
        elif owner is not None or sources.is_program(file):  # no other file imports the function
            made = _compiled_by_call(split)
    if split is not None and made is not None:
        name, edits = made
        title = f"run `{file.code(split.call)}` in front of what is compiled"
        yield Candidate(title, "source", edits, _WHY, whole_calls=(name,))


def _split_at(file: ParsedSource, problem: FixProblem) -> _Split | None:
    """The function or method that breaks at a call, if it can be split there."""
    wanted, call = problem.function, file.at(problem.span, cst.Call)
    function = file.enclosing(call, cst.FunctionDef) if call is not None else None
    if call is None or not isinstance(function, cst.FunctionDef) or not isinstance(function.body, cst.IndentedBlock):
        return None
    around = file.enclosing(function, cst.ClassDef, cst.FunctionDef)
    owner = "" if around is None else f"{file.code(around.name)}."  # type: ignore[attr-defined]  # both have a name
    owner += "<locals>." if isinstance(around, cst.FunctionDef) else ""
    if f"{owner}{function.name.value}" != wanted or (around or function) not in file.module.body:
        return None
    body = function.body.body[1 if function.get_docstring() is not None else 0 :]
    place = next((n for n, each in enumerate(body) if file.line(each) <= file.line(call) <= file.end_line(each)), None)
    if place is None or not _is_first_call(file, call, body[place]):
        return None
    whole = _is_whole(body[place], call)
    name = None if whole else file.free_name("value", inside=function)
    split = _Split(file, function, body, place + whole, call, name)
    return split if _can_be_split(split) else None


def _is_first_call(file: ParsedSource, call: cst.Call, statement: cst.CSTNode) -> bool:
    """Whether a statement makes this call once, before any other, and the call makes none itself."""
    around = file.enclosing(call, *_LATER)
    calls = list(file.nodes(cst.Call, statement))
    alone = calls[0] is call and list(file.nodes(cst.Call, call)) == [call]
    test = isinstance(statement, cst.If) and file.range(call)[1] <= file.range(statement.test)[1]
    simple = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
    return alone and (simple or test) and (around is None or file.range(around)[0] < file.range(statement)[0])


def _is_whole(statement: cst.CSTNode, call: cst.Call) -> bool:
    """Whether the call is all of a statement, or of what it assigns."""
    part = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(part, (cst.Expr, cst.Assign)) and part.value is call


def _can_be_split(split: _Split) -> bool:
    file, function, head = split.file, split.function, split.body[: split.first]
    plain = plain_parameters(function) is not None
    simple = all(isinstance(each, cst.SimpleStatementLine) for each in head)
    stays = any(next(file.nodes(kind, each), None) is not None for each in head for kind in _STAYS)
    frames = next((n for n in file.nodes(cst.Name, function) if n.value in _LOOKS), None)
    yields = next(file.nodes(cst.Yield, function), None)
    whole = frames is not None or yields is not None or has_long_text(file, function)
    return plain and simple and not stays and not whole and split.first < len(split.body)


def _compiled_by_decorator(split: _Split) -> tuple[str, tuple[Edit, ...]] | None:
    """`@torch.compile` goes to the rest, and the function calls it."""
    file, function = split.file, split.function
    if len(function.decorators) != 1 or not file.code(function.decorators[0].decorator).startswith("torch.compile"):
        return None
    name, end, unit = function.name.value, file.newline, file.indent_unit
    rest, given = file.free_name(f"_rest_of_{name.strip('_')}", of=function), ", ".join(split.arguments)
    start, last = file.range(function.name)[0], file.insert_line(file.end_line(function) + 1, "").start
    whole = file.text[start : file.range(split.body[0])[0]].rstrip()
    added = f"def {whole}{end}{split.head(unit)}{unit}return {rest}({given}){end}"
    return name, (Edit(file.name, start, last, f"{rest}({given}):{end}{split.rest(unit)}{end}{end}{added}"),)


def _compiled_by_call(split: _Split) -> tuple[str, tuple[Edit, ...]] | None:
    """What `torch.compile` makes of the rest is called behind the first calls. It is the function's only use."""
    file, function = split.file, split.function
    scope = file.enclosing(function, cst.FunctionDef)
    named = [each for each in file.nodes(cst.Name, scope) if each.value == function.name.value]
    uses = [each for each in named if is_read(file, each) and each is not function.name]
    argument = file.parent(uses[0]) if len(uses) == 1 else None
    call = file.parent(argument) if isinstance(argument, cst.Arg) else None
    if function.decorators or not isinstance(call, cst.Call) or file.code(call.func) != "torch.compile":
        return None
    name, end, unit, pad = function.name.value, file.newline, file.indent_unit, file.indent(function)
    prepared, whole = file.free_name(f"_prepared_{name.strip('_')}", of=function), file.free_name("_call", of=call)
    given, own = split.arguments, [parameter.name.value for parameter in function.params.params]
    blank = end if pad else end * 2
    inner = f"{pad}{unit}def {whole}({file.code(function.params)}):{end}{split.head(pad + unit * 2)}"
    last = f"{pad}{unit * 2}return {name}({', '.join(given)}){end}{end}{pad}{unit}return {whole}{end}"
    made = f"{blank}{pad}def {prepared}({name}):{end}{inner}{last}"
    edits = [
        file.insert_line(file.end_line(function) + 1, made),
        file.replace(call, f"{prepared}({file.code(call)})"),
    ]
    if split.first:
        edits.append(file.replace_lines(split.body[0], split.body[split.first - 1], ""))
    if split.name is not None:
        edits.append(file.replace(split.call, split.name))
    if given != own:
        edits.append(file.replace(function.params, ", ".join(given)))
    return whole, tuple(edits)


def _compiled_by_method(split: _Split, sources: Sources) -> tuple[str, tuple[Edit, ...]] | None:
    """`forward` of a model makes the first calls, and a method that is compiled in its place does the rest."""
    file, function = split.file, split.function
    found = decorator_of_model(file, sources, function)
    if found is None:
        return None
    indent, inner, end = file.indent(function), file.indent(split.body[0]), file.newline
    rest, given = file.free_name("_rest_of_forward", of=function), [name for name in split.arguments if name != "self"]
    whole = file.text[file.range(function)[0] : file.range(split.body[0])[0]].rstrip()
    first = f"{indent}{whole}{end}{split.head(inner)}{inner}return self.{rest}({', '.join(given)}){end}{end}"
    second = f"{indent}{found[0]}{end}{indent}def {rest}({', '.join(['self', *given])}):{end}{split.rest(inner)}"
    return "forward", (file.replace_lines(function, function, first + second), found[1])


def _targets(file: ParsedSource, statement: cst.CSTNode) -> Iterator[cst.Name]:
    for target in file.nodes(cst.AssignTarget, statement):
        yield from file.nodes(cst.Name, target)
