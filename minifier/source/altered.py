"""Programs that are altered, not reduced: with larger numbers, without one statement, or with a named backend."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from minifier.source.observed import Observed
from minifier.source.trees import Edit, apply_edit, expression, render, size
from minifier.source.validity import can_run

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


def with_backend(text: str, backend: str) -> str:
    """The program in which each ``torch.compile`` names this backend, where it names neither a backend nor a mode.

    Inductor is what it takes by itself, and is not named.
    """
    return text if backend == "inductor" else render(_NameBackend(backend).visit(ast.parse(text)))


def names_backend(text: str, backend: str) -> bool:
    """Whether each use of ``torch.compile`` in a program names this backend."""
    nodes = list(ast.walk(ast.parse(text)))
    calls = [node for node in nodes if isinstance(node, ast.Call) and _is_compile(node.func)]
    named = (any(key.arg == "backend" and _is_text(key.value, backend) for key in call.keywords) for call in calls)
    uses = [node for node in nodes if isinstance(node, ast.expr) and _is_compile(node)]
    return 0 < len(calls) == len(uses) and all(named)


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


class _NameBackend(ast.NodeTransformer):
    def __init__(self, backend: str) -> None:
        self._backend = ast.keyword("backend", ast.Constant(backend))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        given = {keyword.arg for keyword in node.keywords}
        if _is_compile(node.func) and len(node.args) <= 1 and not given & {"backend", "mode", "options", None}:
            node.keywords.append(self._backend)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = [
            ast.Call(each, [], [self._backend]) if _is_compile(each) else each for each in node.decorator_list
        ]
        return node


def _is_compile(node: ast.expr) -> bool:
    return ast.unparse(node) == "torch.compile"


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
