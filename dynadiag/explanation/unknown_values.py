"""Conditions on numbers that a tensor holds: what is decided, and the line that takes the number.

Tracing has no values, so it cannot follow ``if n > 3`` after ``n = x.sum().item()``. torch names a symbol of its own
(``zuf0 > 3.0``) and advises to capture the number, which helps only where nothing is decided by it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.identity import enclosing_function
from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.records import Break, Span, Symbol

__all__ = ["NumberCondition", "asked_decision", "branch_decision", "number_advice", "undecided"]

_NEEDED = re.compile(r"Could not (?:guard on|extract .{1,40} from) data-dependent expression (?P<text>.+?) \(unhinted")
_SYMBOL = re.compile(r"\bz?u[fi]?\d+\b")
_Tested = ast.If | ast.While | ast.IfExp
_NEGATED = {ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">"}


@dataclass(frozen=True, slots=True)
class NumberCondition:
    """``condition`` at ``line`` (empty where the line has none), and what takes the number: ``origin``, at a line.

    ``origin`` is empty for a size that is unbacked although no line made it: the caller marked it so.

    ``comparison`` is the condition as an expression that has a truth value for tensors too, empty where it has none;
    ``negated`` is its opposite.
    ``required`` is what must hold where one side of the branch only raises, empty for every other branch.
    ``is_direct``: the number itself is compared, and not a size or another number that was made of it.
    """

    condition: str
    line: int
    origin: str
    origin_line: int
    comparison: str = ""
    negated: str = ""
    required: str = ""
    is_direct: bool = False
    is_loop: bool = False


def asked_decision(text: str, compile_id: str, span: Span, run: RunRecords) -> NumberCondition | None:
    """What a message of torch's asks to be decided at a line: it names symbols, whose lines the recording has."""
    found = _NEEDED.search(text)
    names = set(_SYMBOL.findall(found["text"])) if found else set()
    if not names:
        return None
    return _decision_at(
        run.sources.get(span.file or ""), span, _origin_lines(run.symbols, compile_id, span.file, names)
    )


def branch_decision(item: Break, run: RunRecords) -> NumberCondition | None:
    """The condition on a number that a break is at, or that the number which it takes is for."""
    source = run.sources.get(item.span.file or "")
    if "branching" in item.gb_type:
        lines = _origin_lines(run.symbols, item.compile_id, item.span.file)
        found = _decision_at(source, item.span, lines)
        return found if found is not None and found.condition else None
    if ".item()" in item.gb_type:
        here = (each for each in run.breaks if each.span.file == item.span.file)
        branches = {each.span.line for each in here if "branching" in each.gb_type}
        return _decision_by(source, item.span.line, branches)
    return asked_decision(item.reason, item.compile_id, item.span, run)


def _origin_lines(
    symbols: Sequence[Symbol], compile_id: str, file: str | None, names: Collection[str] = ()
) -> set[int]:
    """The lines of a file that make numbers which tracing does not know: of these symbols, or of a whole compile."""
    return {
        each.user_stack[-1].line or 0
        for each in symbols
        if each.event == "unbacked" and each.compile_id == compile_id and each.user_stack
        if each.user_stack[-1].file == file and (not names or each.name in names)
    }


def _decision_at(source: str | None, span: Span, lines: Collection[int]) -> NumberCondition | None:
    """The condition at a span that one of these lines decides; where there is none, the line and the latest of them."""
    function = enclosing_function(source, span.line)
    if source is None or function is None or span.line is None:
        return None
    for node in _tests(function):
        if node.test.lineno <= span.line <= (node.test.end_lineno or 0):
            origin = _origin(function, node.test, lines)
            if origin is None:
                return _on_a_size(source, node) if node.test.lineno in lines else None
            return _decision(source, function, node, origin)
    origin = max((line for line in lines if line <= span.line), default=None)
    return None if origin is None else NumberCondition("", span.line, _value_at(source, function, origin), origin)


def _on_a_size(source: str, node: _Tested) -> NumberCondition | None:
    """The condition on a size that comes unbacked from outside of the function."""
    condition = _text(source, node.test)
    if not any(isinstance(each, ast.Attribute) and each.attr == "shape" for each in ast.walk(node.test)):
        return None
    return NumberCondition(condition, node.test.lineno, "", node.test.lineno, condition)


def _decision_by(source: str | None, line: int | None, branches: Collection[int | None]) -> NumberCondition | None:
    """The first condition that a number which is taken at a line decides.

    ``branches`` are the lines of conditions on tensors, which broke the graph themselves: such a tensor may have been
    computed with the number, but to capture the number does not decide its condition.
    """
    function = enclosing_function(source, line)
    if source is None or function is None or line is None:
        return None
    tests = (node for node in _tests(function) if node.test.lineno not in branches)
    found = (node for node in tests if _origin(function, node.test, {line}))
    return next((_decision(source, function, node, line) for node in found), None)


def undecided(found: NumberCondition) -> str:
    """Why tracing stops there, in a sentence."""
    if not found.origin:
        return f"`{found.condition}` cannot be decided while tracing: the size is unbacked, as `mark_unbacked` makes it"
    place = "" if found.origin_line == found.line else f" at line {found.origin_line}"
    held = f"the number that `{found.origin}` takes from a tensor{place}"
    if not found.origin.endswith(".item()"):
        held = f"the size of `{found.origin}`{place}, which the values of a tensor decide"
    if found.condition:
        return f"`{found.condition}` cannot be decided while tracing: it depends on {held}"
    return f"this line needs {held}, and tracing has no values"


def number_advice(found: NumberCondition, *, captured: bool, fullgraph: bool) -> tuple[Advice, ...]:
    """What to do about a condition on a number. ``captured``: torch keeps such numbers in the graph already."""
    given: list[Advice] = []
    condition = found.comparison.replace(".item()", "")
    option = "" if captured else "set `torch._dynamo.config.capture_scalar_outputs = True` and "
    if found.required:
        given.append(advice("number.require", condition=found.required, option=option))
    elif not found.origin:
        given += [advice("number.mark_dynamic"), advice("number.cond_of_size", condition=condition)]
    elif found.is_loop:
        given += [advice("number.loop")] if found.is_direct else []
    elif condition and found.is_direct:
        given += [advice("number.where", condition=condition), advice("number.cond", condition=condition)]
    elif condition and not found.origin.endswith(".item()"):
        given.append(advice("number.cond_of_size", condition=condition))
    is_named = found.origin_line != found.line  # each `.item()` is a number of its own
    if found.negated and is_named and not found.is_loop and not found.required:
        given.append(advice("number.check", condition=found.comparison, opposite=found.negated, option=option))
    return (*given, advice("number.split")) if fullgraph else tuple(given)


def _tests(function: ast.AST) -> Iterator[_Tested]:
    found = [node for node in ast.walk(function) if isinstance(node, (ast.If, ast.While, ast.IfExp))]
    yield from sorted(found, key=lambda node: (node.test.lineno, node.test.col_offset))


def _decision(source: str, function: ast.AST, node: _Tested, origin: int) -> NumberCondition:
    condition = _text(source, node.test)
    taken = _taken_at(function, origin)
    value = _value_at(source, function, origin)
    comparison, negated = _comparison(source, node.test)
    held = {name for target, item in _bindings(function, origin) if item in taken for name in _names(target)}
    direct = bool(taken) and (bool(held & _names(node.test)) or origin == node.test.lineno)
    required = ""
    if isinstance(node, ast.If):
        required = negated if _raises(node.body) else comparison if _raises(node.orelse) else ""
    loops = isinstance(node, ast.While)
    return NumberCondition(condition, node.test.lineno, value, origin, comparison, negated, required, direct, loops)


def _comparison(source: str, test: ast.expr) -> tuple[str, str]:
    """A condition as one comparison, and its negation; both empty where it is none."""
    text = _text(source, test)
    if isinstance(test, (ast.Name, ast.Attribute, ast.Call)):
        return f"{text} != 0", f"{text} == 0"
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return "", ""
    sign = _NEGATED.get(type(test.ops[0]))
    sides = (_text(source, test.left), _text(source, test.comparators[0]))
    return text, f"{sides[0]} {sign} {sides[1]}" if sign else ""


def _raises(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _origin(function: ast.AST, test: ast.expr, lines: Collection[int]) -> int | None:
    """Which of these lines the value of a condition comes from, through the names that are assigned before it."""
    if test.lineno in lines and any(isinstance(node, ast.Call) for node in ast.walk(test)):
        return test.lineno
    waiting, met = [(test, test.lineno)], set[str]()
    while waiting:
        value, before = waiting.pop()
        for name in _names(value) - met:
            met.add(name)
            for line, assigned in _assigned(function, name, before):
                if line in lines:
                    return line
                waiting.append((assigned, line))
    return None


def _names(value: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


def _assigned(function: ast.AST, name: str, before: int) -> Iterator[tuple[int, ast.expr]]:
    """The values that a name has had before a line."""
    for target, value in _bindings(function):
        if target.lineno <= before and name in _names(target):
            yield target.lineno, value


def _bindings(function: ast.AST, line: int | None = None) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value; at one line, or in the whole function."""
    for node in ast.walk(function):
        if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            continue
        if node.value is not None and line in (None, node.lineno):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target, node.value) for target in targets)


def _taken_at(function: ast.AST, line: int) -> list[ast.expr]:
    """The calls of ``item`` at a line."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.lineno == line]
    return [node for node in calls if getattr(node.func, "attr", None) == "item"]


def _value_at(source: str, function: ast.AST, line: int) -> str:
    """What takes the number at a line: the call of ``item``, else what is assigned there, else the line."""
    found = [*_taken_at(function, line), *(value for _, value in _bindings(function, line))]
    return _text(source, found[0]) if found else source.split("\n")[line - 1].strip()


def _text(source: str, node: ast.AST) -> str:
    return " ".join((ast.get_source_segment(source, node) or "").split())
