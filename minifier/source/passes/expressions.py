"""Passes that make expressions smaller: they replace one by a part of it, by an observed value, or by a shorter
constant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from minifier.source.observed import Seen
from minifier.source.trees import Edit, expression, size
from minifier.source.validity import makes_unset_tensor

_CONSTANTS = ("None", "0", "1")
_NUMBERS = ("int", "float", "bool", "")  # kinds of values; that of some is unknown


def drop_items(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Remove arguments, elements, operands, conditions of comprehensions and names of imports."""
    for node in ast.walk(tree):
        edits: list[Edit] = []
        match node:
            case ast.Call():
                edits = [{part: ()} for part in [*node.args, *node.keywords]]
            case ast.Tuple() | ast.List() | ast.Set() if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                edits = [{part: ()} for part in node.elts]
            case ast.Dict():
                for i in range(len(node.values)):
                    yield [
                        {
                            node: ast.Dict(
                                [*node.keys[:i], *node.keys[i + 1 :]], [*node.values[:i], *node.values[i + 1 :]]
                            )
                        }
                    ]
            case ast.BoolOp() | ast.JoinedStr():
                edits = [{part: ()} for part in node.values]
            case ast.comprehension():
                edits = [{part: ()} for part in node.ifs]
            case ast.Import() | ast.ImportFrom():
                edits = [{part: ()} for part in node.names]
            case ast.Compare(ops=[_, _, *_]):
                yield [{node: ast.Compare(node.left, node.ops[:1], node.comparators[:1])}]
                yield [{node: ast.Compare(node.comparators[0], node.ops[1:], node.comparators[1:])}]
            case ast.Slice():
                edits = [{part: ()} for part in (node.lower, node.upper, node.step) if part is not None]
            case ast.FormattedValue(format_spec=ast.JoinedStr() as spec):
                edits = [{spec: ()}]
            case ast.Assert(msg=ast.expr() as message):
                edits = [{message: ()}]
        if edits:
            yield edits[::-1]


def smaller_expressions(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace an expression by a part of it, or by a constant, the largest expressions first. A part of a part has to
    be of the same class, as far as that was seen.
    """
    used = _never_constant(tree)
    for node in _expressions(tree):
        if isinstance(node, ast.Constant | ast.Name):
            continue
        direct, kinds = set(_parts(node)), {seen.kind(node), ""}
        inner = [part for part in _inner(node) if part in direct or len(kinds | {seen.kind(part)}) < 3]
        parts: list[Edit] = [{node: part} for part in inner]
        texts = _CONSTANTS if seen.kind(node) in _NUMBERS else _CONSTANTS[:2]
        constants: list[Edit] = [{node: expression(text)} for text in texts if node not in used]
        for edit in [*constants[:1], *parts, *constants[1:]]:
            yield [edit]
    for node in _expressions(tree):
        if isinstance(node, ast.Name) and node.id not in _CONSTANTS and node not in used:
            yield [{node: expression("0")}]


def values_of_text(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace an f-string by one of its values. It may be one token, but hides what is in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    yield [{node: part.value}]


def _never_constant(tree: ast.Module) -> set[ast.expr]:
    """The expressions in whose place no constant can be: it has no attributes that matter, and cannot be called, read
    by index, iterated over or entered.
    """
    found: set[ast.expr] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Starred(value=value):
                found.add(value)
            case (
                ast.Call(func=value) | ast.For(iter=value) | ast.comprehension(iter=value) | ast.YieldFrom(value=value)
            ):
                found.add(value)
            case ast.withitem(context_expr=value) | ast.Raise(exc=ast.expr() as value):
                found.add(value)
            case ast.FunctionDef() | ast.ClassDef():
                found |= {*node.decorator_list, *getattr(node, "bases", ())}
    return found


def _expressions(tree: ast.Module) -> list[ast.expr]:
    """The expressions whose value is used, the largest first; functions of calls are changed with the call."""
    callees = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.expr)
        and not isinstance(node, ast.Slice | ast.Starred | ast.FormattedValue)
        and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        and not (node in callees and isinstance(node, ast.Name | ast.Attribute))
    ]
    return sorted(found, key=size, reverse=True)


def _inner(node: ast.expr, depth: int = 3) -> Iterator[ast.expr]:
    """The parts of an expression, and parts of these: `next(iter([x]))` becomes `x` in one step."""
    for part in _parts(node):
        yield part
        if depth > 1 and not isinstance(part, ast.Name | ast.Constant):
            yield from _inner(part, depth - 1)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=function):
            if isinstance(function, ast.Attribute):
                yield function.value
            for argument in [*node.args, *(k.value for k in node.keywords)]:
                yield argument.value if isinstance(argument, ast.Starred) else argument
            if not isinstance(function, ast.Attribute | ast.Name):
                yield function
            if isinstance(function, ast.Name):
                yield function
        case ast.Lambda(body=body):
            yield body
        case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
            yield node.generators[0].iter
            yield element
        case ast.JoinedStr():
            yield from (value.value for value in node.values if isinstance(value, ast.FormattedValue))
        case ast.Starred(value=value):
            yield value
        case _:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr) and not isinstance(child, ast.Slice | ast.Starred):
                    yield child


def set_tensors(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace tensors whose memory is not set by ones: `torch.ones(4)` for `torch.empty(4)` and `torch.Tensor(4)`."""
    calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call) and makes_unset_tensor(n)]
    names = [(f, f.attr.replace("empty", "ones")) for f in calls if isinstance(f, ast.Attribute)]
    yield [
        {f: ast.Attribute(f.value, "ones" if name.endswith("Tensor") else name, ast.Load())}
        for f, name in names
        if name not in ("ones_strided", "new_ones_strided")
    ]


def seen_results(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace calls of the program's functions by the value that they returned, which leaves other functions unused."""
    calls = [node for node in _expressions(tree) if isinstance(node, ast.Call) and len(seen.values(node)) == 1]
    names = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    own = [node for node in calls if ast.unparse(node.func).rpartition(".")[2] in names]
    yield [{node: expression(seen.values(node)[0])} for node in own]


def seen_values(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace an expression by a value that it had, the largest expressions first."""
    for node in _expressions(tree):
        if isinstance(node, ast.Constant):
            continue
        values = seen.values(node)
        for text in values[:2] if len(values) <= 3 else values[:1]:
            yield [{node: expression(text)}]


def shorter_constants(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace numbers and strings by shorter ones."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant):
            continue
        match node.value:
            case bool() | None:
                pass
            case int() as number if abs(number) > 9:
                for smaller in (number // 2, number // 10, 9, 2):
                    yield [{node: ast.Constant(smaller)}]
            case float() as real:
                for shorter in (round(real, 1), float(round(real)), 1.0):
                    yield [{node: ast.Constant(shorter)}]
                yield [{node: ast.Constant(1)}]
            case str() as text if text:
                for fewer in (text[: len(text) // 2], text[:1], ""):
                    yield [{node: ast.Constant(fewer)}]
