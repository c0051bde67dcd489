"""The names of a syntax tree: which a function binds, which it reads, and which are never used."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those inside nested functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from own_nodes(child)


def scope_of(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.AST:
    """The function that has a node in its body, or the module."""
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            break
    return node


def bound_names(scope: ast.AST) -> set[str]:
    """The names that a scope binds: parameters, assignments, imports, definitions. Names it declares global do not
    count.
    """
    names: set[str] = set()
    shared: set[str] = set()
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        names |= {a.arg for a in ast.walk(scope.args) if isinstance(a, ast.arg)}
    for node in own_nodes(scope):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import() | ast.ImportFrom():
                names |= import_bindings(node)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.Global(names=found) | ast.Nonlocal(names=found):
                shared |= set(found)
    return names - shared


def import_bindings(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The names that an import binds."""
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def names_read(node: ast.AST) -> set[str]:
    """All names that are read anywhere in the node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def uses_of(tree: ast.AST, name: str) -> list[ast.Name]:
    """The nodes at which a name is read, assigned or deleted."""
    return [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]


def reads_of(tree: ast.AST, name: str) -> list[ast.Name]:
    """The nodes at which a name is read."""
    return [n for n in uses_of(tree, name) if isinstance(n.ctx, ast.Load)]


def is_free_of(node: ast.AST, names: Iterable[str]) -> bool:
    """Whether the node reads none of the names."""
    return not names_read(node) & set(names)


def use_counts(tree: ast.AST, without: Container[ast.AST] = ()) -> Counter[str]:
    """How often each name is read, as a name or an attribute, in the tree ``without`` some nodes."""
    counts: Counter[str] = Counter()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node in without:
            continue
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                counts[name] += 1
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                counts.update(names)
        waiting += ast.iter_child_nodes(node)
    return counts


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    """All function definitions, methods too."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def classes(tree: ast.AST) -> list[ast.ClassDef]:
    """All class definitions."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def method_owner(tree: ast.AST) -> dict[ast.AST, ast.ClassDef]:
    """The class of each method."""
    return {item: owner for owner in classes(tree) for item in owner.body if isinstance(item, ast.FunctionDef)}


def new_name(wanted: str, taken: set[str]) -> str:
    """The name, with a number if it is taken."""
    number, name = 1, wanted
    while name in taken or hasattr(builtins, name):
        number += 1
        name = f"{wanted}_{number}"
    return name
