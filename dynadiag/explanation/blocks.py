"""The block of statements because of which a graph break leaves a whole function to Python.

Dynamo goes on after a break by compiling the rest of the function, which it cannot begin in the middle of some blocks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard

from dynadiag.explanation.branches import called_name, is_caught
from dynadiag.explanation.identity import enclosing_function, nodes_of
from dynadiag.recording.records import Span

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_ENTERED_AGAIN = re.compile(r"torch\.|(contextlib\.)?nullcontext\b")  # context managers that Dynamo knows


def unsplittable_block(source: str | None, span: Span) -> str | None:
    """What the innermost such block around a place is ("a loop", "a `with` block", ...). ``None`` if there is none.

    Tried on torch 2.13 and 2.15: Dynamo goes on in an ``else``, in a ``finally``, and in a ``with`` of torch's own.
    """
    line, found = span.line or 0, None
    statements: list[ast.stmt | ast.Lambda] = nodes_of(source, ast.stmt, ast.Lambda)
    around = [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]
    for node in sorted(around, key=lambda node: (node.lineno, -(node.end_lineno or 0))):
        found = None if isinstance(node, _SCOPES) else _kind(node, line) or found
    return found


def handled_lines(source: str | None, span: Span) -> tuple[int, int] | None:
    """The first and last line of the ``try`` body whose innermost handler holds a place; ``None`` if there is none."""
    tries: list[ast.Try | ast.TryStar] = [*nodes_of(source, ast.Try), *nodes_of(source, ast.TryStar)]
    around = [node for node in tries if any(_within(each.body, span.line or 0) for each in node.handlers)]
    inner = max(around, key=lambda node: node.lineno, default=None)
    return None if inner is None else (inner.body[0].lineno, inner.body[-1].end_lineno or inner.body[-1].lineno)


def call_at(source: str | None, span: Span) -> ast.Call | None:
    """Return the call that begins at a place; None where that is not known."""
    calls = nodes_of(source, ast.Call)
    return next((node for node in calls[::-1] if (node.lineno, node.col_offset) == (span.line, span.column)), None)


def made_before(source: str | None, span: Span) -> str:
    """The variables that the call at a place takes and the function has made, where it goes on with the result."""
    call, function = call_at(source, span), enclosing_function(source, span.line)
    if call is None or function is None:
        return ""
    nodes = list(ast.walk(function))
    given = [node for each in (*call.args, *call.keywords) for node in ast.walk(each) if isinstance(node, ast.Name)]
    stored = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    made = {node.id for node in stored if node.lineno < call.lineno}
    is_alone = any(isinstance(node, ast.Expr) and node.value is call for node in nodes)
    names = list(dict.fromkeys(node.id for node in given if node.id in made))
    return "" if is_alone else ", ".join(f"`{name}`" for name in names)


def takes_packed(source: str | None, span: Span) -> bool:
    """Whether a call at a line is given what `pack_padded_sequence` or its like returned."""
    function = enclosing_function(source, span.line)
    nodes = list(ast.walk(function)) if function is not None else []
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.lineno == span.line]
    given = {ast.unparse(each) for call in calls for each in call.args}
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and called_name(node.value) in ("pack_padded_sequence", "pack_sequence")
        and not given.isdisjoint(map(ast.unparse, node.targets))
        for node in nodes
    )


def subscript_at(source: str | None, span: Span) -> ast.Subscript | None:
    """Return the subscript that begins at a place (``self.experts[0]``)."""
    items, place = nodes_of(source, ast.Subscript), (span.line, span.column)
    return next((node for node in items if (node.lineno, node.col_offset) == place), None)


def calls_at(source: str | None, line: int | None) -> int:
    """How many calls at a line may be of something compiled: of a name, or of an attribute of ``self``."""
    here = (node.func for node in nodes_of(source, ast.Call) if node.func.lineno == line)
    return sum(isinstance(call, ast.Name) or ast.unparse(call).startswith("self.") for call in here)


def registers_hook(source: str | None, line: int | None) -> bool:
    """Whether a line registers the hook of a tensor."""
    here = (node.func for node in nodes_of(source, ast.Call) if node.lineno == line)
    return any(isinstance(call, ast.Attribute) and call.attr == "register_hook" for call in here)


def custom_function(source: str | None, span: Span) -> str | None:
    """Return the class derived from `torch.autograd.Function` that a place is in a method of."""
    line = span.line or 0
    classes = [node for node in nodes_of(source, ast.ClassDef) if node.lineno <= line <= (node.end_lineno or 0)]
    bases = ((node.name, ast.unparse(base).rpartition(".")[2]) for node in classes for base in node.bases)
    return next((name for name, base in bases if base == "Function"), None)


def asked_attribute(source: str | None, span: Span) -> str | None:
    """Return the first attribute that the function around a place asks for in a ``try`` that catches AttributeError."""
    function = enclosing_function(source, span.line)
    for node in () if function is None else ast.walk(function):
        caught = [each.type for each in node.handlers] if isinstance(node, ast.Try) else []
        if isinstance(node, ast.Try) and any("AttributeError" in ast.unparse(kind) for kind in caught if kind):
            asked = (each for statement in node.body for each in ast.walk(statement))
            return next((ast.unparse(each) for each in asked if isinstance(each, ast.Attribute)), None)
    return None


def loop_around(source: str | None, line: int | None) -> int | None:
    """Return the line of the loop in which the ``def`` or lambda at a line runs again and again."""
    inner: int | None = None
    for node in sorted(nodes_of(source, ast.stmt), key=lambda node: node.lineno):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        first = min((each.lineno for each in getattr(node, "decorator_list", ())), default=node.lineno)
        if not first <= (line or 0) <= (node.end_lineno or 0) or (is_function and first == line):
            continue
        if is_function or isinstance(node, ast.ClassDef):
            inner = None
        elif isinstance(node, (ast.For, ast.While)) and node.lineno != line:
            inner = node.lineno
    return inner


def is_context_manager(source: str | None, line: int | None) -> bool:
    """Whether the function that begins at a line, with its decorators, is made one by `contextlib.contextmanager`."""
    functions = nodes_of(source, ast.FunctionDef)
    first = (each for each in functions if line in (each.lineno, *(named.lineno for named in each.decorator_list)))
    return any(ast.unparse(named).endswith("contextmanager") for each in first for named in each.decorator_list)


def looped_result(source: str | None, span: Span) -> str | None:
    """Return what a loop or comprehension goes over that begins at a place, or the name that the statement there
    assigns to, where one of the function goes over that."""
    function = enclosing_function(source, span.line)
    nodes = [] if function is None else list(ast.walk(function))
    made = [node for node in nodes if isinstance(node, ast.Assign) and node.lineno == span.line]
    names = {target.id for node in made for target in node.targets if isinstance(target, ast.Name)}
    loops = [node.iter for node in nodes if isinstance(node, (ast.For, ast.comprehension))]
    place = (span.line, span.column)
    over = (each for each in loops if (each.lineno, each.col_offset) == place or not names.isdisjoint(_gone_over(each)))
    return next(map(ast.unparse, over), None)


def _gone_over(iterated: ast.expr) -> set[str]:
    """The names whose items a loop takes: of ``enumerate(hits)`` and ``zip(hits, rows)`` too."""
    inner = isinstance(iterated, ast.Call) and called_name(iterated) in ("enumerate", "zip", "reversed", "iter")
    items = iterated.args if inner and isinstance(iterated, ast.Call) else [iterated]
    return {each.id for each in items if isinstance(each, ast.Name)}


def becomes_list(source: str | None, span: Span) -> bool:
    """Whether `tolist` is called on what the statement at a line makes: there, or on the name that it assigns to."""
    function = enclosing_function(source, span.line)
    nodes = [] if function is None else list(ast.walk(function))
    made = [node for node in nodes if isinstance(node, ast.Assign) and node.lineno == span.line]
    names = {ast.unparse(target) for node in made for target in node.targets}
    calls = [node for node in nodes if isinstance(node, ast.Call) and called_name(node) == "tolist"]
    lists = [node.func.value for node in calls if isinstance(node.func, ast.Attribute)]
    return any(each.lineno == span.line or ast.unparse(each) in names for each in lists)


def branch_on_size(source: str | None, span: Span) -> int | None:
    """Return the line of the first branch that reads the size of a name which the statement at a line assigns."""
    function = enclosing_function(source, span.line)
    nodes = [] if function is None else list(ast.walk(function))
    made = [node for node in nodes if isinstance(node, ast.Assign) and node.lineno == span.line]
    names = {each.id for node in made for target in node.targets for each in ast.walk(target) if type(each) is ast.Name}
    behind = [node for node in nodes if isinstance(node, (ast.If, ast.While)) and node.lineno > (span.line or 0)]
    lines = (node.lineno for node in behind if names & {name for each in ast.walk(node.test) for name in _sized(each)})
    return min(lines, default=None)


def _sized(node: ast.AST) -> Iterator[str]:
    """The name of which an expression asks the size: ``len(x)``, ``x.numel()``, ``x.shape[0]``."""
    if isinstance(node, ast.Attribute) and node.attr in ("numel", "nelement", "shape", "size"):
        yield ast.unparse(node.value)
    elif isinstance(node, ast.Call) and called_name(node) == "len" and node.args:
        yield ast.unparse(node.args[0])


def defined_class(source: str | None, span: Span) -> str | None:
    """Return the name of the class that the statement at a line of a function defines."""
    function = enclosing_function(source, span.line)
    nodes = () if function is None else ast.walk(function)
    return next((node.name for node in nodes if isinstance(node, ast.ClassDef) and node.lineno == span.line), None)


def called_in_condition(source: str | None, span: Span) -> tuple[str, ...]:
    """Return the dotted names of what the condition at a place calls (``np.random.rand``), or what assigns to the names
    in it."""
    tests: Sequence[ast.AST] = _conditions(source, span)
    names = {node.id for test in tests for node in ast.walk(test) if isinstance(node, ast.Name)}
    function = enclosing_function(source, span.line) if names else None
    values = [
        node.value
        for node in (() if function is None else ast.walk(function))
        if isinstance(node, ast.Assign) and not names.isdisjoint(map(ast.unparse, node.targets))
    ]
    calls = [node for each in (*tests, *values) for node in ast.walk(each) if isinstance(node, ast.Call)]
    return tuple(ast.unparse(node.func) for node in calls)


def drawn_at(source: str | None, span: Span, functions: tuple[str, ...]) -> tuple[str, int] | None:
    """The name at a place that has what a call of one of these functions drew before, and the line of that call."""
    function = enclosing_function(source, span.line)
    nodes = () if function is None else tuple(ast.walk(function))
    here = {node.id for node in nodes if isinstance(node, ast.Name) and node.lineno == span.line}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=called)):
                if name in here and node.lineno < (span.line or 0) and ast.unparse(called).startswith(functions):
                    return name, node.lineno
    return None


def has_company(source: str | None, span: Span) -> bool:
    """Whether a function computes anything beside the call at a place. True where its source is not known."""
    function = enclosing_function(source, span.line)
    if function is None or isinstance(function, ast.Lambda):
        return True
    here = [node for node in function.body if node.lineno <= (span.line or 0) <= (node.end_lineno or 0)]
    calls = [each for node in here for each in ast.walk(node) if isinstance(each, (ast.Call, ast.BinOp))]
    return len(calls) > 1 or any(_computes(node) for node in function.body if node not in here)


def is_last(source: str | None, span: Span) -> bool:
    """Whether nothing of a function follows the statement at a place. False where its source is not known.

    The step of a scheduler is Python's, and that of an optimizer is compiled by itself.
    """
    function = enclosing_function(source, span.line)
    if function is None or isinstance(function, ast.Lambda):
        return False
    here = next((node for node in function.body if node.lineno <= (span.line or 0) <= (node.end_lineno or 0)), None)
    return isinstance(here, (ast.Expr, ast.Return, ast.Assign)) and not any(
        _computes(node) and not _steps(node) for node in function.body[function.body.index(here) + 1 :]
    )


def _steps(node: ast.stmt) -> bool:
    called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in ("step", "zero_grad")


def only_raises(source: str | None, span: Span) -> bool:
    """Whether a place is the condition of an ``if`` one side of which does nothing but raise.

    What a ``try`` of the same function catches does not leave it.
    """
    return _raises(source, span) and not is_caught(enclosing_function(source, span.line), span.line)


def raises_into_except(source: str | None, span: Span) -> bool:
    """Whether a place is such a condition in a ``try`` that catches it, behind which the function only returns."""
    function = enclosing_function(source, span.line)
    if not is_caught(function, span.line) or not _raises(source, span) or isinstance(function, ast.Lambda):
        return False
    behind = [node for node in function.body if node.lineno > (span.line or 0)] if function is not None else []
    return all(isinstance(node, ast.Return) for node in behind)


def returns_no_tensor(source: str | None, span: Span) -> bool:
    """Whether a place is the condition of an ``if`` one side of which does nothing but return None or a constant."""
    returned = (each.value for each in _lone_statements(source, span) if isinstance(each, ast.Return))
    return any(each is None or isinstance(each, ast.Constant) for each in returned)


def _raises(source: str | None, span: Span) -> bool:
    return any(isinstance(each, ast.Raise) for each in _lone_statements(source, span))


def _lone_statements(source: str | None, span: Span) -> Iterator[ast.stmt]:
    """The sides of an ``if`` whose condition is at a place, as far as they are one statement."""
    tests = nodes_of(source, ast.If)
    here = (node for node in tests if node.test.lineno <= (span.line or 0) <= (node.test.end_lineno or 0))
    return (side[0] for node in here for side in (node.body, node.orelse) if len(side) == 1)


def writes_through(source: str | None, span: Span) -> str | None:
    """The first write of an ``if mask.any():`` at a place that only writes to the elements of its mask."""
    for node in nodes_of(source, ast.If):
        if node.lineno == span.line and not node.orelse:
            match node.test:
                case ast.Call(func=ast.Attribute(value=mask, attr="any"), args=[], keywords=[]):
                    if all(_writes_to(each, ast.unparse(mask)) for each in node.body):
                        return ast.unparse(node.body[0])
    return None


def _writes_to(statement: ast.stmt, mask: str) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Subscript(slice=index)]):
            return ast.unparse(index) == mask
    return False


def called_beside(source: str | None, line: int | None) -> tuple[str, ...]:
    """The parts, such as layers, that the function around a line calls in other statements (``self.net``).

    A part is an attribute that the file gives a value: a method of the object cannot be compiled in its place.
    """
    made = {ast.unparse(target) for node in nodes_of(source, ast.Assign) for target in node.targets}
    function = enclosing_function(source, line)
    body = [] if function is None or isinstance(function, ast.Lambda) else function.body
    others = [node for node in body if not node.lineno <= (line or 0) <= (node.end_lineno or 0)]
    calls = (node.func for each in others for node in ast.walk(each) if isinstance(node, ast.Call))
    own = (call for call in calls if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name))
    names = dict.fromkeys(ast.unparse(call) for call in own if ast.unparse(call.value) == "self")
    return tuple(name for name in names if name in made)


def _computes(node: ast.stmt) -> bool:
    """Whether a statement is more than a constant, ``pass``, or the return of a name."""
    if isinstance(node, (ast.Expr, ast.Return)):
        return not (node.value is None or isinstance(node.value, (ast.Constant, ast.Name)))
    return not isinstance(node, (ast.Pass, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom))


def is_condition(source: str | None, span: Span) -> bool:
    """Whether a place is in what an ``if`` or ``while`` goes by."""
    return bool(_conditions(source, span))


def is_loop_condition(source: str | None, span: Span) -> bool:
    """Whether a place decides how often a loop runs, or does its work: `decides_a_loop`, or what skips a pass."""
    loops: list[ast.For | ast.While] = [*nodes_of(source, ast.For), *nodes_of(source, ast.While)]
    return bool(_expressions(source, span, lambda at: at.test if decides_a_loop(at, loops, ast.Continue) else None))


def decides_a_loop(
    node: ast.AST, loops: Sequence[ast.For | ast.While], *ends: type[ast.stmt]
) -> TypeGuard[ast.While | ast.If]:
    """Whether the condition of a node decides how often one of these loops runs.

    That of a ``while`` does, and of an ``if`` that breaks out, returns, assigns what a ``while`` around it asks, or
    has one of ``ends``.
    """
    if not isinstance(node, ast.If):
        return isinstance(node, ast.While)
    kinds = {type(each) for each in (*node.body, *node.orelse)}
    around = [loop for loop in loops if node in ast.walk(loop)]
    asked = [each for loop in around if isinstance(loop, ast.While) for each in ast.walk(loop.test)]
    read = {each.id for each in asked if isinstance(each, ast.Name)}
    stored = (each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    leaves = not kinds.isdisjoint({ast.Break, *ends}) or (ast.Return in kinds and bool(around))
    return leaves or any(each.id in read for each in stored)


def is_iterated(source: str | None, span: Span) -> bool:
    """Whether a place is in what a ``for`` loop goes over."""
    return bool(_expressions(source, span, lambda node: node.iter if isinstance(node, ast.For) else None))


def _conditions(source: str | None, span: Span) -> list[ast.expr]:
    tests = (ast.If, ast.While, ast.IfExp)
    return _expressions(source, span, lambda node: node.test if isinstance(node, tests) else None)


def _expressions(source: str | None, span: Span, part: Callable[[ast.AST], ast.expr | None]) -> list[ast.expr]:
    """Those of the expressions that ``part`` takes of nodes which hold a place."""
    nodes = nodes_of(source, ast.If, ast.While, ast.IfExp, ast.For) if None not in (span.line, span.column) else []
    parts = (expression for node in nodes if (expression := part(node)) is not None)
    at = (span.line or 0, span.column or 0)
    return [
        each
        for each in parts
        if (each.lineno, each.col_offset) <= at < (each.end_lineno or 0, each.end_col_offset or 0)
    ]


def _kind(node: ast.AST, line: int) -> str | None:
    match node:
        case ast.For() | ast.AsyncFor() | ast.While() if _within(node.body, line):
            return "a loop"
        case ast.With() | ast.AsyncWith() if _within(node.body, line):
            known = all(_ENTERED_AGAIN.match(ast.unparse(item.context_expr)) for item in node.items)
            return None if known else "a `with` block"
        case ast.Try() | ast.TryStar() if _within(node.body, line):
            return "a `try` block"
        case ast.Try() | ast.TryStar() if any(_within(handler.body, line) for handler in node.handlers):
            return "an `except` block"
    return None


def _within(body: Sequence[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)
