"""`if` on a tensor's value around nothing but a `print`, a warning, a log message or a `raise`, and `assert`: a
function of the module that takes the condition, and that torch calls after the graph, or in it. This is right
because the condition and the values of the message are computed where they were, and only the printing waits; an
exception does not wait. The proof compares both streams and the exceptions, and has to see both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Condition, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text, if_around
from dynadiag.fixes.rewrites.effects import local_names
from dynadiag.fixes.rewrites.numbers import kept_tensor
from dynadiag.fixes.rewrites.printing import prints
from dynadiag.recording.records import Span

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


@dataclass(frozen=True, slots=True)
class _Effect:
    """What happens on a condition. ``text`` is that of the statement, which begins in the file at ``start``;
    ``message`` has the values that are formatted. ``on`` is the condition as a tensor.
    """

    whole: cst.If | cst.SimpleStatementLine
    test: cst.BaseExpression
    on: str
    text: str
    start: int
    message: tuple[cst.BaseExpression, ...]
    what: str


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The function, and its call in place of the `if` or the `assert`."""
    file = sources.file(problem.file)
    if file is None or problem.kind != "break":
        return
    try:
        found = _effect_at(file, problem.span)
        if found is None:
            return
        condition = Condition(file.name, *file.range(found.test))
        name, raises = file.free_name(f"_{found.what}_if", of=found.whole), found.what == "raise"
        for when, decorator, line in _WAYS[1:] if raises else _WAYS:
            edits = _edits(file, found, name, (decorator, line))
            title = f"{'raise' if raises else 'print'} on the condition in a function of its own, which torch {when}"
            yield Candidate(title, "source", edits, _WHY_RAISE if raises else _WHY, (condition,))
    except Unsuitable:
        return


def _effect_at(file: ParsedSource, span: Span) -> _Effect | None:
    """The effect whose condition is at a span; ``None`` if there is more on the condition, or none."""
    found = if_around(file, span)
    if isinstance(found, cst.If):
        return _of_branch(file, found)
    asserted = file.at(span, cst.Assert)
    line = file.parent(asserted) if asserted is not None else None
    if found is not None or asserted is None or not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
        return None
    begin, message = "raise AssertionError(", asserted.msg
    text = f"{begin}{file.code(message)})" if message is not None else "raise AssertionError"
    start = file.range(message)[0] - len(begin) if message is not None else 0
    values = tuple(_formatted(message)) if message is not None else ()
    on = f"torch.logical_not({condition_text(file, asserted.test)})"
    return _Effect(line, asserted.test, on, text, start, values, "raise")


def _of_branch(file: ParsedSource, found: cst.If) -> _Effect | None:
    effect = _only_effect(found)
    call = effect.exc if isinstance(effect, cst.Raise) else effect.value if effect is not None else None
    if effect is None or not (isinstance(effect, cst.Raise) or (isinstance(call, cst.Call) and prints(file, call))):
        return None
    if isinstance(call, cst.Call) and file.code(call.func).startswith("self."):
        return None  # the function of the module has no object
    values = [value for each in call.args for value in _formatted(each.value)] if isinstance(call, cst.Call) else []
    what = file.code(call.func).rpartition(".")[2] if isinstance(call, cst.Call) else ""
    what = "raise" if isinstance(effect, cst.Raise) else what
    text, start = file.code(effect), file.range(effect)[0]
    return _Effect(found, found.test, condition_text(file, found.test), text, start, tuple(values), what)


def _only_effect(found: cst.If) -> cst.Expr | cst.Raise | None:
    """The only statement under an `if`, where it is an expression or a `raise`."""
    body = found.body.body
    line = body[0] if len(body) == 1 and found.orelse is None else None
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if isinstance(statement, cst.Raise):
        return statement if statement.exc is not None and statement.cause is None else None
    return statement if isinstance(statement, cst.Expr) else None


def _edits(file: ParsedSource, found: _Effect, name: str, way: tuple[str, str]) -> tuple[Edit, ...]:
    function = file.enclosing(found.whole, cst.FunctionDef)
    if not isinstance(function, cst.FunctionDef):
        raise Unsuitable("it is not in a function")
    local = local_names(file, function)
    values = [value for value in found.message if any(n.value in local for n in file.nodes(cst.Name, value))]
    names = [f"value_{number}" for number in range(1, len(values) + 1)]
    text = found.text
    for value, own in reversed(list(zip(values, names, strict=True))):
        first, last = (place - found.start for place in file.range(value))
        text = text[:first] + own + text[last:]
    end, unit = file.newline, file.indent_unit
    head = f"{way[0]}{end}def {name}({', '.join(['condition', *names])}):{end}"
    body = f"{unit}if condition:{end}{unit * 2}{text}{end}{end}{end}"
    line = f"{way[1].format(name=name, end=end, unit=unit)}{end}{end}{end}"
    arguments = ", ".join([found.on, *(kept_tensor(file, value) for value in values)])
    return (
        file.insert_line(file.line_above(function), f"{head}{body}{line}"),
        file.replace_lines(found.whole, found.whole, f"{file.indent(found.whole)}{name}({arguments}){end}"),
    )


def _formatted(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What is formatted where a value becomes a text: the values in an f-string, else the value."""
    if isinstance(value, cst.FormattedString):
        parts = value.parts
        yield from (part.expression for part in parts if isinstance(part, cst.FormattedStringExpression))
    else:
        yield value
