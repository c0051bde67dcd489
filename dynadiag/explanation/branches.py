"""The branch that a place is the condition of: its condition as an expression on tensors, and what its sides make.

`torch.where` and `torch.cond` take the place of a branch on the values of a tensor. Both need a condition that is a
tensor, the first two sides of one size, and the second two sides that return tensors of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from dynadiag.explanation.identity import enclosing_function, segment
from dynadiag.recording.records import Span

Tested = ast.If | ast.While | ast.IfExp
# Calls that take sizes.
SIZED = frozenset(
    {"zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "linspace", "range", "view", "reshape"}
    | {"expand", "repeat", "narrow", "split", "tile", "topk", "new_zeros", "new_ones", "new_empty", "new_full", "roll"}
)
SHOWN = frozenset({"print", "debug", "info", "warning", "error", "log", "write", "warn"})
KEPT = frozenset({"append", "add", "extend", "update", "setdefault", "put"})
_RESIZES = SIZED | {"cat", "flatten", "masked_select", "nonzero", "pad", "squeeze", "unique", "unsqueeze"}
_TRUTHS = frozenset({"any", "all", "isnan", "isinf", "isfinite", "isclose", "logical_and", "logical_or", "logical_not"})
# Methods and functions whose result may be their operand, or share its memory.
_ALIASES = frozenset(
    {"view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel", "expand", "expand_as", "t"}
    | {"transpose", "permute", "movedim", "swapaxes", "squeeze", "unsqueeze", "narrow", "select", "diagonal", "unfold"}
    | {"contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "bool", "cpu"}
    | {"cuda", "detach", "Identity", "real", "imag"}
)
_RETURNED = "return "  # begins the name of what a side returns
_NEGATED = {ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">"}


def called_name(node: ast.Call) -> str:
    """The last name of what is called: ``item`` of ``x.max().item()``."""
    return str(getattr(node.func, "attr", None) or getattr(node.func, "id", None))


def tests_of(function: ast.AST | None) -> list[Tested]:
    """The nodes of a function that have a condition, in the order of their conditions."""
    nodes = () if function is None else ast.walk(function)
    found = [node for node in nodes if isinstance(node, (ast.If, ast.While, ast.IfExp))]
    return sorted(found, key=lambda node: (node.test.lineno, node.test.col_offset))


def text_of(source: str, node: ast.expr) -> str:
    """The text of a node, on one line."""
    return " ".join(segment(source, node).split())


def condition_at(source: str | None, span: Span) -> str | None:
    """Return the condition of a branch or loop that a line belongs to."""
    return next((text_of(source or "", node.test) for node in tests_at(source, span)), None)


def is_filter(source: str | None, span: Span) -> bool:
    """Whether a place is in the condition of a comprehension's ``if``."""
    function = enclosing_function(source, span.line)
    loops = [node for node in ast.walk(function) if isinstance(node, ast.comprehension)] if function else []
    return any(_holds(test, span) for loop in loops for test in loop.ifs)


def tensor_condition(source: str | None, span: Span) -> str:
    """The condition that a place belongs to as one expression of tensors; empty where it may not be one."""
    tests = tests_at(source, span)
    here = [node for node in tests if _holds(node.test, span)] or tests
    return _tensor_text(source or "", here[-1].test) if here else ""


def _holds(test: ast.expr, span: Span) -> bool:
    at = (span.line or 0, span.column or 0)
    return (test.lineno, test.col_offset) <= at < (test.end_lineno or 0, test.end_col_offset or 0)


def _tensor_text(source: str, test: ast.expr) -> str:
    """``and`` and ``not`` ask for one truth value; ``&`` and `torch.logical_not` are computed for tensors."""
    match test:
        case ast.BoolOp(values=values):
            parts = [_tensor_text(source, each) if _is_truth(each) else "" for each in values]
            sign = " & " if isinstance(test.op, ast.And) else " | "
            return sign.join(f"({part})" for part in parts) if all(parts) else ""
        case ast.UnaryOp(op=ast.Not()):
            inner = _tensor_text(source, test.operand)
            return f"torch.logical_not({inner})" if inner else ""
        case ast.Call(func=ast.Name(id="bool"), args=[value]):
            return _tensor_text(source, value)
        case ast.Compare(ops=[single]):
            return text_of(source, test) if type(single) in _NEGATED else ""
        case ast.Compare() | ast.NamedExpr():
            return ""
    text = text_of(source, test)
    return text if _is_truth(test) else f"{text} != 0"


def _is_truth(test: ast.expr) -> bool:
    """Whether an expression is true or false by itself, and not by being zero or not."""
    if isinstance(test, ast.Call):
        return called_name(test) in _TRUTHS
    return isinstance(test, (ast.Compare, ast.BoolOp)) or (isinstance(test, ast.UnaryOp) and _is_truth(test.operand))


def compared(source: str, test: ast.expr) -> tuple[str, str]:
    """A condition as one comparison, and its negation; both empty where it is none."""
    text = text_of(source, test)
    if isinstance(test, (ast.Name, ast.Attribute, ast.Call)):
        return f"{text} != 0", f"{text} == 0"
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return compared(source, test.operand)[::-1]
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return "", ""
    sign = _NEGATED.get(type(test.ops[0]))
    sides = (text_of(source, test.left), text_of(source, test.comparators[0]))
    return text, f"{sides[0]} {sign} {sides[1]}" if sign else ""


def raises(body: Sequence[ast.stmt]) -> bool:
    """Whether a side of a branch ends in an exception."""
    return bool(body) and isinstance(body[-1], ast.Raise)


def is_caught(function: ast.AST | None, line: int | None) -> bool:
    """Whether a line of a function is in a ``try`` of it that catches exceptions."""
    nodes = () if function is None else ast.walk(function)
    tries = (node for node in nodes if isinstance(node, (ast.Try, ast.TryStar)) and node.handlers)
    return any(node.body[0].lineno <= (line or 0) <= (node.body[-1].end_lineno or 0) for node in tries)


def _shows(statement: ast.stmt, used: Collection[str]) -> bool:
    """Whether a statement shows or keeps something. A container of ``used`` does not count: the function reads it."""
    match statement:
        case ast.Assign(targets=[ast.Attribute()], value=ast.Name() | ast.Attribute() | ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name))) as call) if name in used:
            return called_name(call) in SHOWN
        case ast.Expr(value=ast.Call() as call):
            return called_name(call) in SHOWN | KEPT
    return False


def _branches_at(source: str | None, span: Span) -> list[ast.If]:
    return [node for node in tests_at(source, span) if isinstance(node, ast.If)]


def _inside(branches: Sequence[ast.If]) -> list[ast.AST]:
    """All nodes of the sides of some branches."""
    return [each for node in branches for side in (*node.body, *node.orelse) for each in ast.walk(side)]


def only_shows(source: str | None, span: Span) -> bool:
    """Whether the branch at a line only prints, logs or stores values, and none that its condition reads."""
    branches = _branches_at(source, span)
    function = enclosing_function(source, span.line)
    return bool(branches) and all(shows(node, function) and not _sets_what_it_reads(node) for node in branches)


def _sets_what_it_reads(branch: ast.If) -> bool:
    read = {ast.unparse(each) for each in ast.walk(branch.test) if isinstance(each, ast.Name | ast.Attribute)}
    assigned = [each for each in (*branch.body, *branch.orelse) if isinstance(each, ast.Assign)]
    return any(ast.unparse(place) in read for each in assigned for place in each.targets)


def does_more(source: str | None, span: Span) -> bool:
    """Whether a side of the branch at a line does more than compute values: it loops, or calls for an effect."""
    inner = _inside(_branches_at(source, span))
    calls = [each.value for each in inner if isinstance(each, ast.Expr)]
    effects = [each for each in calls if isinstance(each, ast.Call) and not called_name(each).endswith("_")]
    return bool(effects) or any(isinstance(each, ast.For | ast.While) for each in inner)


def shows(branch: ast.If, function: ast.AST | None) -> bool:
    """Whether both sides of a branch in a function only print, log or store values."""
    used = _used_containers(function)
    return all(_shows(each, used) for each in (*branch.body, *branch.orelse))


def _used_containers(function: ast.AST | None) -> set[str]:
    """The variables that a function makes and reads, other than to keep something in them or to return them."""
    nodes = [] if function is None else list(ast.walk(function))
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    parts = [each for value in returned for each in (value.elts if isinstance(value, ast.Tuple) else [value])]
    calls = [node.func for node in nodes if isinstance(node, ast.Call) and called_name(node) in KEPT]
    kept = [*parts, *(each.value for each in calls if isinstance(each, ast.Attribute))]
    names = [node for node in nodes if isinstance(node, ast.Name) and not any(node is each for each in kept)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return made & {node.id for node in names if isinstance(node.ctx, ast.Load)}


def required_at(source: str | None, span: Span) -> str | None:
    """Return the condition under which a line does not raise: of an ``assert``, or of a branch of which one side only
    raises. None for every other line.
    """
    for node in tests_at(source, span):
        if isinstance(node, ast.Assert):
            return _tensor_text(source or "", node.test) or None
        if isinstance(node, ast.If):
            text, negated = compared(source or "", node.test)
            sides = {negated: node.body, text: node.orelse}
            return next((held for held, side in sides.items() if held and len(side) == 1 and raises(side)), None)
    return None


def may_resize(source: str | None, span: Span) -> bool:
    """Whether a side of the branch at a line slices or reshapes: the sides then may not have one size."""
    function = enclosing_function(source, span.line)
    branches = _branches_at(source, span)
    values = [each for node in branches for each in (*node.body, *(node.orelse or _sides(function, node)[1][:1]))]
    inner = [each for value in values for each in ast.walk(value)]
    return any(
        isinstance(each, ast.Slice) or (isinstance(each, ast.Call) and called_name(each) in _RESIZES) for each in inner
    )


def written_in_place(source: str | None, span: Span) -> ast.Call | None:
    """The first call in a side of the branch at a line that writes to a tensor (``grad.mul_(factor)``)."""
    own = (each for each in _inside(_branches_at(source, span)) if isinstance(each, ast.Call))
    return next((each for each in own if (name := called_name(each)).endswith("_") and not name.endswith("__")), None)


def kept_side(source: str | None, span: Span) -> str:
    """What a side of the branch at a line has for its value without computing anything: ``v``, or a view such as
    ``v[:2]``. Empty where each side makes a tensor of its own.
    """
    function = enclosing_function(source, span.line)
    tests = tests_at(source, span)
    return kept_by(source or "", function, tests[0]) if tests and function is not None else ""


def kept_by(source: str, function: ast.AST, node: Tested | ast.Assert) -> str:
    """`kept_side` of a branch in a function."""
    if isinstance(node, ast.IfExp):
        return next((text_of(source, each) for each in (node.body, node.orelse) if is_of_an_operand(each)), "")
    made = [_assigned(side) for side in _sides(function, node)] if isinstance(node, ast.If) else []
    ends = any(isinstance(each, ast.Return) for each in ast.walk(node))
    for own, other in zip(made, made[::-1], strict=True):
        for name, value in own.items():
            if ends and not name.startswith(_RETURNED):  # its names are no values of the branch
                continue
            if name.isidentifier() and not ends and not _is_tensor_behind(function, name, node):
                continue
            if is_of_an_operand(value) and not (isinstance(value, ast.Name) and value.id in own):
                return text_of(source, value)
            if name not in other and not ends and _has_value(function, name, node.lineno):
                return name
    return ""


def _is_tensor_behind(function: ast.AST, name: str, branch: ast.AST) -> bool:
    """Whether a name that a branch assigns may be a tensor that is read outside of it: nothing makes it a number."""
    own = {*ast.walk(branch)}
    outside = [each for each in ast.walk(function) if each not in own]
    assigned = [(each.targets[0], each.value) for each in outside if isinstance(each, ast.Assign)]
    values = (pair for target, value in assigned for pair in unpacked(target, value))
    is_number = any(isinstance(value, ast.Constant) and ast.unparse(place) == name for place, value in values)
    return not is_number and any(isinstance(each, ast.Name) and each.id == name for each in outside)


def _has_value(function: ast.AST, name: str, line: int) -> bool:
    """Whether a name may have a value before a line: an attribute, an argument, what is assigned there."""
    nodes = [*ast.walk(function)]
    given = {node.arg for node in nodes if isinstance(node, ast.arg)}
    names = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return not name.isidentifier() or name in given or any(each.id == name and each.lineno < line for each in names)


def _assigned(side: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """The last value of each name that the statements of a side assign, and of what it returns."""
    found: dict[str, ast.expr] = {}
    for statement in side:
        match statement:
            case ast.Assign(targets=[target], value=value):
                found |= {ast.unparse(place): each or ast.Constant(None) for place, each in unpacked(target, value)}
            case ast.AugAssign(target=target, op=operator, value=value):
                found[ast.unparse(target)] = ast.BinOp(target, operator, value)
            case ast.Return(value=ast.expr() as value):
                values = value.elts if isinstance(value, ast.Tuple) else [value]
                found |= {f"{_RETURNED}{place}": each for place, each in enumerate(values)}
    return found


def unpacked(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr | None]]:
    """The places that an assignment writes to, each with its value: None where a tuple is unpacked that is not written
    as one.
    """
    if not isinstance(target, ast.Tuple):
        return [(target, value)]
    places = [each.value if isinstance(each, ast.Starred) else each for each in target.elts]
    items: Sequence[ast.expr | None] = value.elts if isinstance(value, (ast.Tuple, ast.List)) else ()
    return [*zip(places, items if len(items) == len(places) else [None] * len(places), strict=True)]


def is_of_an_operand(value: ast.expr) -> bool:
    """Whether the value of an expression may be, or share its memory with, a tensor that it reads."""
    return isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)) or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _ALIASES
    )


def _sides(function: ast.AST | None, node: ast.If) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statements of both sides: where the first returns and there is no second, it is what follows."""
    if node.orelse or not isinstance(node.body[-1], ast.Return) or function is None:
        return node.body, node.orelse
    blocks = (getattr(each, "body", None) for each in ast.walk(function))
    block: list[ast.stmt] = next((block for block in blocks if isinstance(block, list) and node in block), [node])
    return node.body, block[block.index(node) + 1 :]


def tests_at(source: str | None, span: Span) -> list[Tested | ast.Assert]:
    """The nodes of the function around a line that have a condition there; none for the filter of a comprehension."""
    function = enclosing_function(source, span.line) if source is not None else None
    if is_filter(source, span):
        return []
    checks = [node for node in ast.walk(function) if isinstance(node, ast.Assert)] if function is not None else []
    return [
        node
        for node in (*tests_of(function), *checks)
        if node.test.lineno <= (span.line or 0) <= (node.test.end_lineno or 0)
    ]
