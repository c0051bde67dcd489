"""Turns a program that prints a wrong output into one that asserts the right output."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from minifier.source.observed import Seen
from minifier.source.trees import Edit, apply_edit, expression, render, statements

__all__ = ["asserting_programs", "printing_program", "with_texts"]

_PRINTING_DECORATOR = """
def shown(function):

    def call(*args, **kwargs):
        result = function(*args, **kwargs)
        print(result, args, kwargs)
        return result
    return call
"""


def asserting_programs(tree: ast.Module, seen: Seen, printed: str) -> Iterator[str]:
    """Programs that assert what this one prints uncompiled, the shortest first.

    ``seen`` is the uncompiled run, ``printed`` its whole output.
    """
    prints = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_print(node.value)]
    for node in reversed(prints):
        assert isinstance(node.value, ast.Call)
        for argument in node.value.args:
            values = seen.values(argument)
            if len(values) == 1:
                equal = ast.Compare(argument, [ast.Eq()], [expression(values[0])])
                yield _applied(tree, {**dict.fromkeys(prints, ()), node: ast.Assert(equal, None)})
    calls = [node for node in ast.walk(tree) if _is_print(node)]
    kept: Edit = {node: _kept(node) for node in calls if isinstance(node, ast.Call)}
    collected = apply_edit(tree, kept)
    start = 1 + max((i for i, s in enumerate(collected.body) if isinstance(s, ast.ImportFrom)), default=-1)
    last = statements(f"assert ' '.join(printed) == {' '.join(printed.split(chr(10))).strip()!r}")
    body = [*collected.body[:start], *statements("printed = []"), *collected.body[start:], *last]
    yield render(ast.Module(body, []))


def _kept(call: ast.Call) -> ast.expr:
    """`printed.append(...)` in the place of a print."""
    texts = ast.Call(ast.Name("map", ast.Load()), [ast.Name("str", ast.Load()), ast.Tuple(call.args, ast.Load())], [])
    return ast.Call(expression("printed.append"), [ast.Call(expression("' '.join"), [texts], [])], [])


def _applied(tree: ast.Module, edit: Edit) -> str:
    return render(apply_edit(tree, edit))


def _is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def with_texts(tree: ast.Module) -> ast.Module:
    """The program with `str(x)` printed in place of `x`, so that each printed value is text."""
    arguments = [a for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_print(node) for a in node.args]
    return apply_edit(tree, {a: ast.Call(ast.Name("str", ast.Load()), [a], []) for a in arguments if not _is_text(a)})


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
