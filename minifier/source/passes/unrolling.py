"""Passes that replace what goes through items by what is done with each: generators, comprehensions, rows."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from minifier.source.calls import Calls, CallTarget
from minifier.source.observed import Seen
from minifier.source.scopes import reads_of, use_counts
from minifier.source.trees import Edit, Replacement, apply_edit, call_arguments, parents_of, substitute

_MAX_UNROLLED = 3  # elements


def unroll_generators(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace a loop over a generator, or a `with` of one that is a context manager, by the generator's body, with the
    body of the loop or `with` in place of its only yield.
    """
    calls = Calls(tree, seen)
    counts = use_counts(tree)
    for user in ast.walk(tree):
        match user:
            case ast.For(target=target, iter=ast.Call() as call):
                body = user.body
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=target), *more]):
                body = [ast.With(more, user.body)] if more else user.body
            case _:
                continue
        for found in calls.targets(call):
            unrolled = _unrolled(found, call, target, body)
            if unrolled is not None:
                gone: Edit = {found.function: ()} if counts[found.function.name] <= 1 else {}
                yield [{user: unrolled, **gone}]


def unroll_comprehensions(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """`[f(a) for a in (x, y)]` becomes `[f(x), f(y)]`."""
    for node in ast.walk(tree):
        match node:
            case ast.ListComp(generators=[loop]) | ast.SetComp(generators=[loop]):
                match loop:
                    case ast.comprehension(ast.Name(name), ast.List(values) | ast.Tuple(values), ifs=[]):
                        if len(values) <= _MAX_UNROLLED:
                            parts = [substitute(node.elt, {name: value}) for value in values]
                            is_set = isinstance(node, ast.SetComp)
                            yield [{node: ast.Set(parts) if is_set else ast.List(parts, ast.Load())}]


def unroll_function_tools(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """`partial(f, x)(y)` becomes `f(x, y)`, `map(f, (x, y))` becomes `[f(x), f(y)]`, and `reduce(f, (x, y), z)` becomes
    `f(f(z, x), y)`.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Call(func=made, args=[function, *given], keywords=named)) if _is_called(
                made, "partial"
            ):
                yield [{node: ast.Call(function, [*given, *node.args], [*named, *node.keywords])}]
            case ast.Call(func=made, args=[function, ast.List(elts=values) | ast.Tuple(elts=values), *first]):
                if _is_called(made, "map") and not first and len(values) <= _MAX_UNROLLED:
                    yield [{node: ast.List([ast.Call(function, [value], []) for value in values], ast.Load())}]
                elif _is_called(made, "reduce") and len(values) <= _MAX_UNROLLED and (first or values):
                    start, *rest = [*first, *values]
                    found = functools.reduce(lambda done, value: ast.Call(function, [done, value], []), rest, start)
                    yield [{node: found}]


def _is_called(function: ast.expr, name: str) -> bool:
    """Whether an expression is a function of this name, or of a module."""
    return name in (getattr(function, "id", ""), getattr(function, "attr", ""))


def unwrap_single_items(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace a list, tuple or dict of one item by the item: `y = [x]` becomes `y = x`, with all that reads `y[0]` or
    goes through it.
    """
    parents = parents_of(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=[item]) | ast.Tuple(elts=[item])):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=[ast.expr()], values=[item])):
                pass
            case _:
                continue
        edits = [_read_of_item(read, parents) for read in reads_of(tree, name)]
        if edits and all(edits):
            yield [{node.value: item} | {key: value for edit in edits for key, value in edit.items()}]


def _read_of_item(read: ast.Name, parents: dict[ast.AST, ast.AST]) -> Edit:
    """The edit that reads the item where ``read`` was what holds it; empty if it is used in another way."""
    user = parents[read]
    match user:
        case ast.Subscript(value=value) if value is read:
            return {user: read}
        case ast.comprehension(target=ast.Name(id=name), ifs=[]):
            whole = parents[user]
            if isinstance(whole, ast.ListComp | ast.SetComp | ast.GeneratorExp) and len(whole.generators) == 1:
                return {whole: ast.List([substitute(whole.elt, {name: read})], ast.Load())}
        case ast.For(target=target):
            return {user: (ast.Assign([target], read), *user.body)}
    return {}


def drop_columns(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Remove a column of the rows that a loop goes through: `for a, b in ((1, 2), (3, 4))` becomes
    `for a in (1, 3)`, and `for v in ((1, 2), (3, 4))` with `a, b = v` becomes `for v in ((1,), (3,))` with `a, = v`.
    Rows of one item become the item.
    """
    for loop in ast.walk(tree):
        match loop:
            case ast.For(target=target, iter=ast.Tuple(rows) | ast.List(rows)):
                cells = [_items(row) for row in rows]
                unpacked = [target] if _items(target) else _unpacking(tree, ast.unparse(target))
                sizes = {len(row) for row in [*cells, *map(_items, unpacked)]}
                if len(sizes) != 1 or not unpacked or not (width := sizes.pop()):
                    continue
                whole = [*rows, *unpacked]
                if width == 1:
                    yield [{row: _items(row)[0] for row in whole}]
                for place in range(width if width > 1 else 0):
                    edit: dict[ast.AST, Replacement] = {_items(row)[place]: () for row in whole}
                    names = {ast.unparse(_items(target)[place]) for target in unpacked}
                    edit |= {read: ast.Constant(0) for name in names for read in reads_of(tree, name)}
                    yield [edit]


def _items(node: ast.expr) -> list[ast.expr]:
    """The items of a tuple or list that is written down, one by one."""
    items = node.elts if isinstance(node, ast.Tuple | ast.List) else []
    return [] if any(isinstance(item, ast.Starred) for item in items) else items


def _unpacking(tree: ast.Module, name: str) -> list[ast.expr]:
    """The targets to which a name is unpacked; none if it is read in another way."""
    reads = reads_of(tree, name)
    found = [n.targets[0] for n in ast.walk(tree) if isinstance(n, ast.Assign) and n.value in reads]
    return found if len(found) == len(reads) else []


def _unrolled(
    found: CallTarget, call: ast.Call, target: ast.expr | None, body: list[ast.stmt]
) -> tuple[ast.stmt, ...] | None:
    """The body of a generator with another body in place of its yield; None if it has several, or returns."""
    function = found.function
    nodes = list(ast.walk(function))
    yields = [n for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Yield)]
    arguments = call_arguments(function, call, found.bound)
    if len(yields) != 1 or arguments is None or any(isinstance(n, ast.Return) for n in nodes):
        return None
    if found.receiver is not None and function.args.args:
        arguments[function.args.args[0].arg] = found.receiver
    marker = yields[0]
    assert isinstance(marker.value, ast.Yield)
    value = marker.value.value or ast.Constant(None)
    given = [ast.Assign([target], value)] if target is not None else []
    marked = apply_edit(ast.Module(function.body, []), {marker: (*given, ast.Expr(ast.Constant(...)))})
    whole = ast.Module([substitute(part, arguments) for part in marked.body], [])
    places = [n for n in ast.walk(whole) if isinstance(n, ast.Expr) and ast.unparse(n) == "..."]
    return tuple(apply_edit(whole, {place: tuple(body) for place in places}).body)  # whose names are not substituted
