"""Turns a program that prints a wrong output into one that asserts the right output."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from minifier.source.observed import Seen
from minifier.source.scopes import names_read
from minifier.source.trees import Edit, apply_edit, expression, render, statements

_COUNTING = frozenset(("len", "set", "sorted", "all", "any"))  # builtins that hide how a value differs
_COMPARING = frozenset(("assert_close", "assert_equal", "allclose", "equal"))  # functions, and methods, of two values
_PRINTING_DECORATOR = """
def shown(function):

    def call(*args, **kwargs):
        result = function(*args, **kwargs)
        print(result, args, kwargs)
        return result
    return call
"""


def asserting_programs(tree: ast.Module, seen: Seen) -> Iterator[str]:
    """Programs that assert one of the values that this one prints uncompiled, or all that one statement prints; the
    last statement first. ``seen`` is the uncompiled run.
    """
    prints = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_print(node.value)]
    evaluated: Edit = {node: _evaluated(node) for node in prints}
    for node in reversed(prints):
        assert isinstance(node.value, ast.Call)
        arguments = node.value.args
        for shown in [*arguments, ast.Tuple(arguments, ast.Load())] if len(arguments) > 1 else arguments:
            values = [seen.values(part) for part in (arguments if isinstance(shown, ast.Tuple) else [shown])]
            if all(len(found) == 1 for found in values):
                right = [expression(found[0]) for found in values]
                test = _equals(shown, ast.Tuple(right, ast.Load()) if len(right) > 1 else right[0])
                yield _applied(tree, {**evaluated, node: (*_others(arguments, shown), ast.Assert(test, None))})


def _equals(shown: ast.expr, right: ast.expr) -> ast.expr:
    """`shown == right`, or `shown` and `not shown` for truth values."""
    match right:
        case ast.Constant(value=True):
            return shown
        case ast.Constant(value=False):
            return ast.UnaryOp(ast.Not(), shown)
    return ast.Compare(shown, [ast.Eq()], [right])


def _evaluated(node: ast.Expr) -> tuple[ast.Expr, ...]:
    """The arguments of a print as statements: what they call may have an effect."""
    assert isinstance(node.value, ast.Call)
    return tuple(ast.Expr(argument) for argument in node.value.args)


def _others(arguments: list[ast.expr], shown: ast.expr) -> tuple[ast.Expr, ...]:
    """The arguments before the one that is shown, as statements."""
    return tuple(ast.Expr(a) for a in arguments[: arguments.index(shown)]) if shown in arguments else ()


def output_asserting_program(tree: ast.Module, printed: str) -> str:
    """The program asserting its whole output, which is ``printed`` uncompiled."""
    calls = [node for node in ast.walk(tree) if _is_print(node)]
    kept: Edit = {node: _kept(node) for node in calls if isinstance(node, ast.Call)}
    collected = apply_edit(tree, kept)
    start = 1 + max((i for i, s in enumerate(collected.body) if isinstance(s, ast.ImportFrom)), default=-1)
    last = statements(f"assert ' '.join(printed) == {' '.join(printed.split(chr(10))).strip()!r}")
    body = [*collected.body[:start], *statements("printed = []"), *collected.body[start:], *last]
    return render(ast.Module(body, []))


def _kept(call: ast.Call) -> ast.expr:
    """`printed.append(...)` in the place of a print."""
    texts = ast.Call(ast.Name("map", ast.Load()), [ast.Name("str", ast.Load()), ast.Tuple(call.args, ast.Load())], [])
    return ast.Call(expression("printed.append"), [ast.Call(expression("' '.join"), [texts], [])], [])


def _applied(tree: ast.Module, edit: Edit) -> str:
    return render(apply_edit(tree, edit))


def _is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def printing_assertions(tree: ast.Module) -> Iterator[str]:
    """The program printing what one of its assertions compares, and nothing else: then a reduced program need not keep
    the values that are right. The first assertion first; later ones are gone.
    """
    shown = {node: values for node in ast.walk(tree) if (values := _asserted_values(node))}
    silent: Edit = {n: _evaluated(n) for n in ast.walk(tree) if isinstance(n, ast.Expr) and _is_print(n.value)}
    order = sorted(shown, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
    for place, node in enumerate(order):
        later: Edit = {after: tuple(map(ast.Expr, shown[after])) for after in order[place + 1 :]}
        for values in ([_counted(value) for value in shown[node]], shown[node]):
            printed = ast.Expr(ast.Call(ast.Name("print", ast.Load()), values, []))
            yield _applied(tree, {**silent, **later, node: printed})
            if values == shown[node]:
                break


def _asserted_values(node: ast.AST) -> list[ast.expr]:
    """What an assertion compares, or what a branch that only raises asks, without the right value if that is written
    there; empty for other nodes.
    """
    match node:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            return [left, right] if names_read(right) else [left]
        case ast.Assert(test=test):
            return [test]
        case ast.If(test=ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]), body=[ast.Raise()], orelse=[]):
            return [left, right] if names_read(right) else [left]
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test) | test, body=[ast.Raise()], orelse=[]):
            return [test]
        case ast.Expr(value=ast.Call(func=function, args=[_, _, *_] as args)) if ".assert" in ast.unparse(function):
            return args[:2]
    return []


def _counted(value: ast.expr) -> ast.expr:
    """What a value counts or puts in order: `x` of `len(set(x))`."""
    match value:
        case ast.Call(func=ast.Name(id=name), args=[ast.expr() as inner], keywords=[]) if name in _COUNTING:
            return value if isinstance(inner, ast.Starred | ast.GeneratorExp) else _counted(inner)
    return value


def handing_over_program(text: str, module: str, name: str) -> tuple[str, tuple[str, str]] | None:
    """The program that gives both values which its last assertion compares to the function ``name`` of a module first,
    and the source of both. None if that is no comparison of two values for equality.
    """
    tree = ast.parse(text)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Assert | ast.Expr) and _is_asserting(node)]
    pair = _compared_pair(last) if nodes and (last := max(nodes, key=lambda node: node.lineno)) else None
    if pair is None:
        return None
    names = [ast.Name(f"_value_{side}", ast.Load()) for side in ("left", "right")]
    before = statements(
        f"_value_left, _value_right = 0, 0\nfrom {module} import {name}\n{name}(_value_left, _value_right)"
    )
    assert isinstance(before[0], ast.Assign)
    before[0].value = ast.Tuple(list(pair), ast.Load())
    compared = apply_edit(ast.Module([last], []), dict(zip(pair, names, strict=True)))
    left, right = map(ast.unparse, pair)
    return render(apply_edit(tree, {last: (*before, *compared.body)})), (left, right)


def _is_asserting(node: ast.Assert | ast.Expr) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node.value, ast.Call) and _is_comparing(node.value.func))


def _is_comparing(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in _COMPARING


def _compared_pair(node: ast.Assert | ast.Expr) -> tuple[ast.expr, ast.expr] | None:
    """The two values that an assertion takes as equal."""
    match node.test if isinstance(node, ast.Assert) else node.value:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return left, right
        case ast.Call(
            func=ast.Attribute(value=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]), attr="all")
        ):
            return left, right
        case ast.Call(func=function, args=[ast.expr() as left, ast.expr() as right, *_]) if _is_comparing(function):
            return left, right
        case ast.Call(func=ast.Attribute(value=left) as function, args=[right]) if _is_comparing(function):
            return left, right
    return None


def with_plain_values(tree: ast.Module) -> Iterator[ast.Module]:
    """The program that prints the elements of a tuple one by one, then with each printed tensor as numbers or as their
    sum, then with each value as a list or text.
    """
    printed = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_print(node)]
    tree = apply_edit(tree, {a: tuple(a.elts) for node in printed for a in node.args if isinstance(a, ast.Tuple)})
    yield tree
    arguments = [a for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_print(node) for a in node.args]
    values = {a: a.value if isinstance(a, ast.Starred) else a for a in arguments if not _is_text(a)}
    for methods in (["item"], ["tolist"], ["sum", "item"]):
        yield apply_edit(tree, {a: _called(value, methods) for a, value in values.items()})
    for function in ("list", "str"):
        yield apply_edit(tree, {a: ast.Call(ast.Name(function, ast.Load()), [v], []) for a, v in values.items()})


def _called(value: ast.expr, methods: list[str]) -> ast.expr:
    """The value with these methods called: `x.sum().item()`."""
    for name in methods:
        value = ast.Call(ast.Attribute(value, name, ast.Load()), [], [])
    return value


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def printing_program(tree: ast.Module) -> str:
    """The program with each compiled call printing its result and its arguments."""
    compiled = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.compile"
    ]
    decorators = {d: f for f in ast.walk(tree) for d in getattr(f, "decorator_list", ())}
    edit: dict[ast.AST, ast.AST | tuple[ast.AST, ...]] = {}
    name = ast.Name("shown", ast.Load())
    for node in ast.walk(tree):
        is_decorator = node in decorators and ast.unparse(node).startswith("torch.compile")
        if is_decorator:
            edit[node] = (name, node)
        elif node in compiled:
            edit[node] = ast.Call(name, [node], [])
    changed = apply_edit(tree, edit)
    first = sum(isinstance(s, ast.ImportFrom) and s.module == "__future__" for s in changed.body[:1])
    return render(ast.Module([*changed.body[:first], *statements(_PRINTING_DECORATOR), *changed.body[first:]], []))
