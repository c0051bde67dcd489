"""`if` on a tensor's value around nothing but a `print`, a warning, a log message or a `raise`: a function of the
module that takes the condition, and that torch calls after the graph, or in it. This is right because the condition and
the values of the message are computed where they were, and only the printing waits; an exception does not wait. The
proof compares both streams and the exceptions, and has to see both sides.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Condition, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text, if_around
from dynadiag.fixes.rewrites.numbers import kept_tensor
from dynadiag.fixes.rewrites.printing import prints

__all__ = ["candidates"]

_WHY = "the condition and the values are computed at their place, and the message is printed when they are there"
_WHY_RAISE = "the condition is computed at its place, and the exception is raised there"
# Of a function that is inlined, torch forgets what is to be called after the graph.
_WAYS = (
    (
        "calls after the graph",
        "@torch.compiler.disable",
        "torch._dynamo.config.reorderable_logging_functions.add({name})",
    ),
    (
        "runs in the graph",
        "@torch._dynamo.decorators.leaf_function",
        "@{name}.register_fake{end}def _(*_):{end}{unit}return None",
    ),
)


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The function, and its call in place of the `if`."""
    file = sources.file(problem.file)
    found = if_around(file, problem.span) if file is not None and problem.kind == "break" else None
    effect = _only_effect(found) if isinstance(found, cst.If) else None
    if file is None or not isinstance(found, cst.If) or effect is None:
        return
    raises = isinstance(effect, cst.Raise)
    call = effect.exc if isinstance(effect, cst.Raise) else effect.value
    if not (raises or (isinstance(call, cst.Call) and prints(file, call))):
        return
    condition = Condition(file.name, *file.range(found.test))
    what = "raise" if raises else file.code(call.func).rpartition(".")[2]  # type: ignore[union-attr]  # a Call, see above
    name = file.free_name(f"_{what}_if")
    for when, decorator, line in _WAYS[1:] if raises else _WAYS:
        try:
            edits = _edits(file, found, effect, call if isinstance(call, cst.Call) else None, name, (decorator, line))
        except Unsuitable:
            return
        title = f"{'raise' if raises else 'print'} on the condition in a function of its own, which torch {when}"
        yield Candidate(title, "source", edits, _WHY_RAISE if raises else _WHY, (condition,))


def _only_effect(found: cst.If) -> cst.Expr | cst.Raise | None:
    """The only statement under an `if`, where it is an expression or a `raise`."""
    body = found.body.body
    line = body[0] if len(body) == 1 and found.orelse is None else None
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if isinstance(statement, cst.Raise):
        return statement if statement.exc is not None and statement.cause is None else None
    return statement if isinstance(statement, cst.Expr) else None


def _edits(
    file: ParsedSource,
    found: cst.If,
    effect: cst.Expr | cst.Raise,
    call: cst.Call | None,
    name: str,
    way: tuple[str, str],
) -> tuple[Edit, ...]:
    function = file.enclosing(found, cst.FunctionDef)
    if not isinstance(function, cst.FunctionDef):
        raise Unsuitable("it is not in a function")
    local = _local_names(file, function)
    given = list(_values(call)) if call is not None else []
    values = [value for value in given if any(n.value in local for n in file.nodes(cst.Name, value))]
    names = [f"value_{number}" for number in range(1, len(values) + 1)]
    text, start = file.code(effect), file.range(effect)[0]
    for value, own in reversed(list(zip(values, names, strict=True))):
        place = file.range(value)
        text = text[: place[0] - start] + own + text[place[1] - start :]
    end, unit = file.newline, file.indent_unit
    head = f"{way[0]}{end}def {name}({', '.join(['condition', *names])}):{end}"
    body = f"{unit}if condition:{end}{unit * 2}{text}{end}{end}{end}"
    line = f"{way[1].format(name=name, end=end, unit=unit)}{end}{end}{end}"
    arguments = ", ".join([condition_text(file, found.test), *(kept_tensor(file, value) for value in values)])
    indent = file.indent(found)
    return (
        file.insert_line(_line_above(file, function), f"{head}{body}{line}"),
        file.replace_lines(found, found, f"{indent}{name}({arguments}){end}"),
    )


def _line_above(file: ParsedSource, function: cst.FunctionDef) -> int:
    """The line of the statement of the module that a function is in, with its decorators and comments."""
    top: cst.CSTNode = function
    while (above := file.parent(top)) is not None and above is not file.module:
        top = above
    decorators = top.decorators if isinstance(top, (cst.FunctionDef, cst.ClassDef)) else ()
    line, lines = file.line(decorators[0] if decorators else top), file.text.splitlines()
    while line > 1 and lines[line - 2].startswith("#"):
        line -= 1
    return line


def _local_names(file: ParsedSource, function: cst.FunctionDef) -> set[str]:
    """The parameters and the assigned names of a function."""
    names = {parameter.name.value for parameter in file.nodes(cst.Param, function)}
    targets = [each.target for each in file.nodes(cst.AssignTarget, function)]
    targets += [each.target for each in file.nodes(cst.For, function)]
    return names | {name.value for target in targets for name in file.nodes(cst.Name, target)}


def _values(call: cst.Call) -> Iterator[cst.BaseExpression]:
    """What a call formats: its arguments, and the values in an f-string."""
    for argument in call.args:
        if isinstance(argument.value, cst.FormattedString):
            parts = argument.value.parts
            yield from (part.expression for part in parts if isinstance(part, cst.FormattedStringExpression))
        else:
            yield argument.value
