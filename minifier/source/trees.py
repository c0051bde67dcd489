"""Syntax trees that are changed without being mutated.

An edit maps nodes to what replaces them. Edits of one tree combine by union, so a group of them is tried as one
candidate. Applying an edit builds a new tree that shares the unchanged parts with the old one.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

Replacement = ast.AST | Sequence[ast.AST]
Edit = Mapping[ast.AST, Replacement]  # an empty sequence removes the node
Function = ast.FunctionDef | ast.AsyncFunctionDef
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def apply_edit(tree: ast.Module, edit: Edit) -> ast.Module:
    """The tree with the edit. A replacement may hold original nodes; edits of these apply as well."""
    parents = _parents(tree)
    untouched = parents.keys() - _with_ancestors(edit, parents)
    changed = _apply(tree, edit, untouched)
    return changed if isinstance(changed, ast.Module) else tree


@functools.lru_cache(2)
def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    return parents_of(tree)


def _with_ancestors(nodes: Iterable[ast.AST], parents: Mapping[ast.AST, ast.AST]) -> set[ast.AST]:
    found: set[ast.AST] = set()
    for node in nodes:
        while node not in found:
            found.add(node)
            node = parents.get(node, node)
    return found


def _apply(node: ast.AST, edit: Edit, skipped: Set[ast.AST]) -> Any:
    """The node with the edit; ``skipped`` are nodes that stay as they are."""
    if node in skipped:
        return node
    if node in edit:
        found, edit = edit[node], {key: value for key, value in edit.items() if key is not node}
        if isinstance(found, ast.AST):
            return _apply(found, edit, skipped)
        return [part for inner in found for part in _as_list(_apply(inner, edit, skipped))]
    fields = {name: _apply_field(node, name, value, edit, skipped) for name, value in ast.iter_fields(node)}
    if all(fields[name] is value for name, value in ast.iter_fields(node)):
        return node
    return ast.copy_location(type(node)(**fields), node)


def _apply_field(node: ast.AST, name: str, value: Any, edit: Edit, skipped: Set[ast.AST]) -> Any:
    if isinstance(value, ast.AST):
        found = _apply(value, edit, skipped)
        return (found[0] if found else None) if isinstance(found, list) else found
    if not isinstance(value, list):
        return value
    parts = [part for inner in value for part in _as_list(_apply(inner, edit, skipped) if _is_node(inner) else inner)]
    if len(parts) == len(value) and all(a is b for a, b in zip(parts, value, strict=True)):
        return value
    needs_body = name == "body" and isinstance(node, ast.stmt | ast.excepthandler | ast.match_case)
    return parts or ([ast.Pass()] if needs_body else [])


def _is_node(value: Any) -> bool:
    return isinstance(value, ast.AST)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def render(tree: ast.AST) -> str:
    """The tree as Python, in one form whatever the layout was. Raises if it is not Python."""
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"  # it asks a new assignment for its line


def expression(text: str) -> ast.expr:
    """The expression in a text."""
    return ast.parse(text, mode="eval").body


def statements(text: str) -> list[ast.stmt]:
    """The statements in a text."""
    return ast.parse(text).body


def size(node: ast.AST) -> int:
    """The number of nodes, to try the largest first."""
    return sum(1 for _ in ast.walk(node))


def blocks(tree: ast.AST) -> Iterator[list[ast.AST]]:
    """All lists of statements, exception handlers and match cases, outermost first."""
    for node in ast.walk(tree):
        for name in _BODIES:
            value = getattr(node, name, None)
            if isinstance(value, list) and value and isinstance(value[0], ast.AST):
                yield value


def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """The parent of each node."""
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


class _Substitution(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr], on_store: Callable[[str], str]) -> None:
        self._names, self._on_store = names, on_store

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self._names:
            return copy.deepcopy(self._names[node.id])
        return ast.Name(self._on_store(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._on_store(node.arg), node.annotation)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._on_store(node.name)
        return self.generic_visit(node)


def substitute(node: ast.AST, names: Mapping[str, ast.expr], on_store: Callable[[str], str] = lambda name: name) -> Any:
    """A copy of the node in which names are replaced where they are read; other names go through ``on_store``."""
    return _Substitution(names, on_store).visit(copy.deepcopy(node))


def call_arguments(function: Function | ast.Lambda, call: ast.Call, bound: int) -> dict[str, ast.expr] | None:
    """The argument of each parameter; ``bound`` parameters come before those of the call. None if it is unclear.

    ``*args`` gets a tuple, ``**kwargs`` a dict.
    """
    spec = function.args
    names = [a.arg for a in [*spec.posonlyargs, *spec.args]][bound:]
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    found: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
    rest, keywords = call.args[len(names) :], {str(k.arg): k.value for k in call.keywords}
    known = {*names, *(a.arg for a in spec.kwonlyargs)}
    found |= {name: value for name, value in keywords.items() if name in known}
    extra = {name: value for name, value in keywords.items() if name not in known}
    if (rest and not spec.vararg) or (extra and not spec.kwarg):
        return None
    if spec.vararg:
        found[spec.vararg.arg] = ast.Tuple(list(rest), ast.Load())
    if spec.kwarg:
        found[spec.kwarg.arg] = ast.Dict([ast.Constant(name) for name in extra], list(extra.values()))
    defaults = dict(
        zip(reversed([a.arg for a in [*spec.posonlyargs, *spec.args]]), reversed(spec.defaults), strict=False)
    )
    defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    for name in known - found.keys():
        if name not in defaults:
            return None
        found[name] = defaults[name]
    return found
