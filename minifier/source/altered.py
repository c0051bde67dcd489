"""Programs that are altered to learn something, not to reduce them: with larger numbers, or without one statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from minifier.source.observed import Observed
from minifier.source.trees import Edit, apply_edit, expression, render, size
from minifier.source.validity import can_run

__all__ = ["enlarged", "programs_without_line"]

_FACTORS = (10, 100, 1000, 10000)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def enlarged(text: str) -> Iterator[str]:
    """The program with one of its numbers multiplied, small factors and large numbers first.

    A hang that was reduced under a short time limit must outlast a long one.
    """
    tree = ast.parse(text)
    constants = [(node, node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    numbers = [(value, node) for node, value in constants if isinstance(value, int) and value > 1]
    for factor in _FACTORS:
        for value, node in sorted(numbers, key=lambda pair: -pair[0]):
            yield render(apply_edit(tree, {node: ast.Constant(value * factor)}))


def programs_without_line(text: str, line: int, observed: Observed) -> Iterator[tuple[str, str]]:
    """The innermost statement at a line, and the program without what it does: the nearest to the program first.

    A value that is assigned or returned becomes the value that it had, or one of its operands. A branch becomes one of
    its bodies, and any other statement goes. ``observed`` is an uncompiled run of the program.
    """
    tree = ast.parse(text)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_at(node, line)]
    if not found:
        return
    statement, seen = min(found, key=size), observed.of(tree)
    name = ast.unparse(statement).partition("\n")[0]
    values = [expression(value) for node in _values(statement) for value in seen.values(node)]
    for edit in (*_with_values(statement, values), *_without(statement)):
        candidate = render(apply_edit(tree, edit))
        if can_run(candidate):
            yield name, candidate


def _is_at(node: ast.stmt, line: int) -> bool:
    return not isinstance(node, _DEFINITIONS) and node.lineno <= line <= (node.end_lineno or node.lineno)


def _values(node: ast.stmt) -> list[ast.expr]:
    """The expression whose value an assignment or `return` passes on."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return) and node.value is not None:
        return [node.value]
    return []


def _with_values(node: ast.stmt, seen: list[ast.expr]) -> Iterator[Edit]:
    for value in _values(node):
        operands = [part for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr)]
        for instead in (*seen, *operands):
            yield {value: instead}


def _without(node: ast.stmt) -> Iterator[Edit]:
    for body in (getattr(node, "body", ()), getattr(node, "orelse", ())):
        if body:
            yield {node: body}
    yield {node: ()}
