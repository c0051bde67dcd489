"""Passes that remove statements, or replace a compound statement by its body."""

from __future__ import annotations

import ast
import copy
import itertools
import string
from collections.abc import Iterator, Sequence
from typing import Any

from minifier.source.observed import Seen
from minifier.source.scopes import classes, import_bindings, is_free_of, names_read, new_name, use_counts, uses_of
from minifier.source.trees import Edit, apply_edit, blocks, expression, size

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_MAX_ROUNDS = 3  # of a loop that is unrolled
_ROUNDS = 20  # of a loop over numbers
_MIN_ROLLED = 3  # calls that become a loop


def drop_not_run(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Remove code that did not run: the bodies of functions that were not called, branches that were not taken."""
    edits: list[Edit] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or not seen.ran(node):
            continue
        bodies = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        bodies += [part.body for part in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]]
        if isinstance(node, ast.If) and not seen.ran(node.body[0]):
            edits.append({node: tuple(node.orelse)})
            continue
        unused = [part for part in getattr(node, "handlers", ()) if not seen.ran(part.body[0])]
        if isinstance(node, ast.Try) and len(unused) == len(node.handlers) and not node.finalbody:
            edits.append({node: (*node.body, *node.orelse)})
            continue
        edits += [{part: ()} for part in unused]
        edits += [dict.fromkeys(body, ()) for body in bodies if body and not seen.ran(body[0])]
        edits += [{inner: ()} for body in bodies for inner in body if seen.ran(body[0]) and not seen.ran(inner)]
    yield edits


def drop_statements(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Remove statements, block by block, the largest block first. Later statements go first: they use earlier ones."""
    for block in sorted(blocks(tree), key=lambda b: -sum(map(size, b))):
        plain = [node for node in block if not (isinstance(node, ast.Pass) and len(block) == 1)]
        yield [{node: ()} for node in reversed(plain)]


def drop_driver_statements(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Remove statements of the module and of the functions that it calls itself (`main`), which leaves much code
    unused.
    """
    plain = [node for node in tree.body if not isinstance(node, (*_DEFINITIONS, ast.Import, ast.ImportFrom))]
    called = {n.id for node in plain for n in ast.walk(node) if isinstance(n, ast.Name)}
    drivers = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in called]
    for block in [plain, *(driver.body for driver in drivers)]:
        yield [{node: ()} for node in reversed(block)]


def drop_unused(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Remove imports, definitions and assignments of names that nothing reads, and then what only these read."""
    edits: list[Edit] = []
    gone: set[ast.AST] = set()
    while True:
        more = [edit for edit in _unused(tree, gone) if not edit.keys() <= gone]
        if not more:
            break
        edits += more
        gone |= {node for edit in more for node in edit}
    yield edits


def _unused(tree: ast.Module, gone: set[ast.AST]) -> Iterator[Edit]:
    """The edits that remove names that nothing reads, once the nodes ``gone`` are removed."""
    counts, fields = use_counts(tree, gone), {node for owner in classes(tree) for node in owner.body}
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                unused = [a for a in node.names if not counts[a.asname or a.name.partition(".")[0]]]
                if unused and import_bindings(node) != {"annotations"}:
                    yield {node: ()} if len(unused) == len(node.names) else dict.fromkeys(unused, ())
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if not counts[name] and not name.startswith("__") and name != "forward":
                    yield {node: ()}
            case ast.AnnAssign() if node in fields:  # an argument of the class: it goes with what is passed for it
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if not counts[name]:
                    yield {node: ()}
            case ast.Assign(targets=[ast.Attribute(attr=name)]):
                if counts[name] == 1:
                    yield {node: ()}


def unwrap_compounds(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace a compound statement by one of its bodies; a loop runs once, with the first value that it had."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not isinstance(node, _DEFINITIONS)]
    for node in sorted(found, key=size, reverse=True):
        edits: list[Edit] = [{**_jumps(node), node: tuple(body)} for body in _bodies(node, seen)]
        if edits:
            yield edits
        match node:  # a condition as the value that depends on it
            case ast.If(test=test, body=[ast.Assign(targets=[ast.Name() as target]) | ast.AugAssign(target=target)]):
                yield [{node: _assign(ast.Name(ast.unparse(target), ast.Store()), test)}]
        for part in [*getattr(node, "handlers", ()), *getattr(node, "items", ())]:
            if len(getattr(node, "items", "two")) > 1:
                yield [{part: ()}]
        for block in (getattr(node, "orelse", None), getattr(node, "finalbody", None)):
            if block:
                yield [dict.fromkeys(block, ())]


def fill_literals(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """`x = []` with `x.append(y)` after it becomes `x = [y]`, and `x = {}` with `x[k] = y` becomes `x = {k: y}`."""
    for block in blocks(tree):
        for one, other in itertools.pairwise(block):
            if not isinstance(one, ast.Assign) or not isinstance(one.targets[0], ast.Name):
                continue
            made, name = one.value, one.targets[0].id
            match other:
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=to), attr="append"), args=[value])):
                    if to == name and isinstance(made, ast.List):
                        yield [{made: ast.List([*made.elts, value], ast.Load()), other: ()}]
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=to), slice=key)], value=value):
                    if to == name and isinstance(made, ast.Dict):
                        yield [{made: ast.Dict([*made.keys, key], [*made.values, value]), other: ()}]


def unroll_loops(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace a loop of few rounds by its body for each round, or take the last statement out of it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.For):
            continue
        values = _few_values(node.iter)
        if values and not _jumps(node):
            rounds = [(_assign(node.target, value), *copy.deepcopy(node.body)) for value in values]
            yield [{node: tuple(part for parts in rounds for part in parts)}]
        if len(node.body) > 1:
            yield [{node.body[-1]: (), node: (node, copy.deepcopy(node.body[-1]))}]


def loop_over_less(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """`for i, x in enumerate(xs)` becomes `for x in xs`; the same for `zip` and `items`."""
    for node in ast.walk(tree):
        match node:
            case ast.For(
                target=ast.Tuple(elts=targets), iter=ast.Call(func=ast.Name(id="enumerate"), args=[numbered, *_])
            ):
                yield [{node.target: targets[-1], node.iter: numbered}]
            case ast.For(target=ast.Tuple(elts=targets), iter=ast.Call(func=ast.Name(id="zip"), args=sources)):
                for target, source in zip(targets, sources, strict=False):
                    yield [{node.target: target, node.iter: source}]
            case ast.For(target=ast.Tuple(elts=[key, _]), iter=ast.Call(func=ast.Attribute(value=table, attr="items"))):
                yield [{node.target: key, node.iter: table}]


def loop_over_numbers(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """`for a, b in pairs` becomes `for a in range(20)`, or `for a in "abcdefghijklmnopqrst"`: more rounds than a
    recompile limit allows. What else the loop binds is a constant.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.For) or ast.unparse(node.iter).startswith("range("):
            continue
        names = [n for n in ast.walk(node.target) if isinstance(n, ast.Name)]
        reads = [n for part in node.body for n in ast.walk(part) if isinstance(n, ast.Name)]
        for kept in names:
            others = {n.id for n in names} - {kept.id}
            constants: Edit = {n: ast.Constant(0) for n in reads if n.id in others}
            for values in (f"range({_ROUNDS})", repr(string.ascii_lowercase[:_ROUNDS])):
                yield [{node.target: kept, node.iter: expression(values), **constants}]


def _few_values(node: ast.expr) -> list[ast.expr]:
    """The values of a loop of at most three rounds, as far as they are written down."""
    match node:
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(count))]):
            return [ast.Constant(n) for n in range(count)] if count <= _MAX_ROUNDS else []
        case ast.Tuple(elts=values) | ast.List(elts=values) if len(values) <= _MAX_ROUNDS:
            return values
    return []


def roll_calls(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace calls that follow one another and differ in one expression by a loop over that expression."""
    for block in blocks(tree):
        for run in _runs(block):
            for calls in (run, run[1:], run[:-1]):
                place = _expression(calls[0], _common([_difference(calls[0], call) for call in calls[1:]]))
                if len(calls) >= _MIN_ROLLED and len(place) > 1:  # the first step leads to the call itself
                    yield [_rolled(tree, calls, place)]


def _runs(block: Sequence[ast.AST]) -> Iterator[list[ast.Expr]]:
    """The neighbours in a block that call one function."""
    for _, found in itertools.groupby(block, key=_called):
        run = [statement for statement in found if isinstance(statement, ast.Expr)]
        if len(run) >= _MIN_ROLLED and _called(run[0]):
            yield run


def _called(statement: ast.AST) -> str:
    called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return ast.dump(statement.value.func) if called else ""  # type: ignore[attr-defined]  # mypy loses the condition


_Place = tuple[tuple[str, int | None], ...]  # the way to a node: fields, and places in lists


def _difference(one: Any, other: Any) -> _Place | None:
    """The way to the smallest expression that has all that differs; None if nothing does."""
    if isinstance(one, ast.AST) and type(one) is type(other):
        found = [
            ((name, place), *rest)
            for name, parts, others in ((n, v, getattr(other, n, None)) for n, v in ast.iter_fields(one))
            for place, part, its in _paired(parts, others)
            if (rest := _difference(part, its)) is not None
        ]
        return _common(found) if found else None
    return None if one == other else ()


def _paired(parts: Any, others: Any) -> list[tuple[int | None, Any, Any]]:
    if isinstance(parts, list) and isinstance(others, list) and len(parts) == len(others):
        return [(place, *pair) for place, pair in enumerate(zip(parts, others, strict=True))]
    return [(None, parts, others)]


def _common(places: Sequence[_Place | None]) -> _Place:
    """The longest way that the ways have in common."""
    found = [place for place in places if place is not None]
    together = zip(*found, strict=False) if found else ()
    return tuple(steps[0] for steps in itertools.takewhile(lambda steps: len(set(steps)) == 1, together))


def _expression(node: ast.AST, place: _Place) -> _Place:
    """The way to the expression that what is at ``place`` is a part of."""
    return next((place[:n] for n in range(len(place), 0, -1) if isinstance(_at(node, place[:n]), ast.expr)), ())


def _rolled(tree: ast.Module, calls: Sequence[ast.Expr], place: _Place) -> Edit:
    name = new_name("v", set(use_counts(tree)))
    body = copy.deepcopy(calls[0])
    varying = _at(body, place)
    replaced = apply_edit(ast.Module([body], []), {varying: ast.Name(name, ast.Load())}).body
    values = ast.Tuple([copy.deepcopy(_at(call, place)) for call in calls], ast.Load())
    loop = ast.For(ast.Name(name, ast.Store()), values, replaced, [])
    return {calls[0]: loop, **dict.fromkeys(calls[1:], ())}


def _at(node: Any, place: _Place) -> Any:
    for name, number in place:
        node = getattr(node, name) if number is None else getattr(node, name)[number]
    return node


def use_at_once(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Use what is collected in a list where it is collected: `found.append(x)` becomes `print(x)`, or the body of a
    loop over what was found.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value])):
                shown = [p for p in ast.walk(tree) if _prints(p, name)]
                if shown:
                    printed = ast.Expr(ast.Call(ast.Name("print", ast.Load()), [value], []))
                    yield [{node: printed, **dict.fromkeys(shown, ())}]
                for loop in ast.walk(tree):
                    if isinstance(loop, ast.For) and name in names_read(loop.iter) and not _jumps(loop):
                        yield [{node: (_assign(loop.target, value), *loop.body), loop: ()}]


def _prints(node: ast.AST, name: str) -> bool:
    """Whether a statement prints something with this name."""
    is_print = (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "print" in ast.unparse(node.value.func)
    )
    return is_print and bool(uses_of(node, name))


def _jumps(loop: ast.stmt) -> dict[ast.AST, tuple[()]]:
    """The edit that removes the `break` and `continue` of a loop, which mean nothing without it."""
    found: dict[ast.AST, tuple[()]] = {}
    waiting: list[ast.AST] = list(loop.body) if isinstance(loop, _LOOPS) else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Break | ast.Continue):
            found[node] = ()
        if isinstance(node, _LOOPS):  # its own jumps stay
            waiting += node.orelse
        elif not isinstance(node, _DEFINITIONS):
            waiting += [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr)]
    return found


def _bodies(node: ast.stmt, seen: Seen) -> Iterator[list[ast.stmt]]:
    match node:
        case ast.If() | ast.While():
            if node.orelse:
                yield node.orelse
            yield node.body
        case ast.For():
            if is_free_of(ast.Module(node.body, []), {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}):
                yield [ast.Expr(ast.Call(ast.Name("next", ast.Load()), [node.iter], [])), *node.body]
            iterator = ast.Call(ast.Name("iter", ast.Load()), [node.iter], [])
            yield [_assign(node.target, ast.Call(ast.Name("next", ast.Load()), [iterator], [])), *node.body]
            for value in seen.values(node.target)[:1] if isinstance(node.target, ast.Name) else ():
                yield [_assign(node.target, expression(value)), *node.body]
            yield node.body
        case ast.With():
            named = [i for i in node.items if i.optional_vars is not None]
            yield [*(_assign(i.optional_vars, i.context_expr) for i in named if i.optional_vars), *node.body]
            yield node.body
        case ast.Try():
            yield from (h.body for h in node.handlers)
            yield [*node.body, *node.finalbody]
            yield node.body
        case ast.Match():
            for case in node.cases:
                yield case.body


def _assign(target: ast.expr, value: ast.expr) -> ast.Assign:
    return ast.Assign([target], value)


def keep_value_only(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Keep only the expression of an assignment, an assertion, a return or a deletion: `y = f(x)` becomes `f(x)`, and
    `y[i] += 1` becomes `y[i]`.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Assign(value=value) | ast.Assert(test=value):
                yield [{node: ast.Expr(value)}]
            case ast.AugAssign(target=target, value=value):
                yield [{node: ast.Expr(value)}]
                yield [{node: ast.Expr(target)}]
            case ast.Return(value=ast.expr() as value):
                yield [{node: ast.Expr(value)}]
            case ast.AnnAssign(value=ast.expr() as value, target=ast.Name() as target):
                yield [{node: ast.Assign([target], value)}]
            case ast.Raise(cause=ast.expr()):
                yield [{node: ast.Raise(node.exc, None)}]
            case ast.Expr(value=ast.Yield(value=ast.expr() as value) | ast.Await(value=value)):
                yield [{node: ast.Expr(value)}]


def split_tuples(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Split `a, b = x, y` and `a = b = x` into assignments of their own, or drop a target with its value."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                pairs = [(n, v) for n, v in zip(names, values, strict=False) if not isinstance(n, ast.Starred)]
                yield [{node: tuple(ast.Assign([n], v) for n, v in pairs)}] if pairs else []
                if len(names) == len(values):
                    for name, v in zip(names, values, strict=True):
                        yield [{name: (), v: ()}]
                for name in names:
                    yield [{node: ast.Assign([name], value)}]
                    yield [{name: ()}]
            case ast.Assign(targets=[_, _, *_] as targets):
                for target in targets:
                    yield [{target: ()}]
