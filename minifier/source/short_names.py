"""The last step: short names, and the layout of a file that a person would write."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from keyword import iskeyword

from minifier.source.scopes import bound_names, import_bindings, method_owner
from minifier.source.trees import render

_MAX_SHORT = 10  # characters of a name of the program that stays: its author knows it
_NUMBER = re.compile(r"_(?:[2-9]|[1-9]\d+)$")  # of `new_name`
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_FUNCTIONS, _CLASSES, _VARIABLES = "fghpqrstuvw", "ABCDEFGHIJK", "xyzabcdeijklmno"


def tidied(text: str) -> Iterator[str]:
    """The program with short names, imports first and blank lines between its parts, the tidiest first."""
    tree = ast.parse(text)
    names = _short_names(tree)
    renamed = render(_Rename(names).visit(ast.parse(text)))
    yield _with_imports_first(renamed)
    yield renamed
    yield _with_imports_first(text)


def _short_names(tree: ast.Module) -> dict[str, str]:
    """Return a short name for each long name that the program binds, except imports. A name such as `x_2` loses its
    number if the name `x` is free.
    """
    nodes = list(ast.walk(tree))
    imported = {n for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for n in import_bindings(node)}
    scopes = [n for n in nodes if isinstance(n, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    bound = {name for scope in scopes for name in bound_names(scope)} | _comprehension_names(tree)
    bound |= {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    functions = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    methods = {m.name for m in method_owner(tree) if isinstance(m, ast.FunctionDef)}
    classes = {n.name for n in nodes if isinstance(n, ast.ClassDef)}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | imported | bound
    found: dict[str, str] = {}
    fields = {name for node in nodes if isinstance(node, ast.ClassDef) for name in bound_names(node)}  # attributes
    for name in sorted(bound - imported - methods - fields, key=lambda name: (len(name) > _MAX_SHORT, name)):
        plain = _NUMBER.sub("", name)
        is_free = plain.isidentifier() and plain not in used and not iskeyword(plain) and not hasattr(builtins, plain)
        if plain != name and is_free and len(plain) <= _MAX_SHORT:
            used.add(plain)
            found[name] = plain
        if name in found or len(name) <= _MAX_SHORT or name.startswith("__"):
            continue
        letters = _CLASSES if name in classes else _FUNCTIONS if name in functions else _VARIABLES
        short = next((letter for letter in letters if letter not in used), name)
        used.add(short)
        found[name] = short
    return found


def _comprehension_names(tree: ast.Module) -> set[str]:
    targets = [g.target for node in ast.walk(tree) for g in getattr(node, "generators", ())]
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def _new(self, name: str) -> str:
        return self._names.get(name, name)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._new(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._new(node.arg), node.annotation)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        return ast.Global([self._new(name) for name in node.names])

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        return ast.Nonlocal([self._new(name) for name in node.names])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._new(node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._new(node.name)
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = node.name and self._new(node.name)
        return self.generic_visit(node)


def _with_imports_first(text: str) -> str:
    """The program with its plain imports at its beginning, each module once, in the order of their names."""
    tree = ast.parse(text)
    plain = [node for node in tree.body if isinstance(node, ast.Import)]
    aliases = sorted({alias.name: alias for n in plain for alias in n.names}.values(), key=lambda a: a.name)
    start = sum(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body[:1])
    rest = [node for node in tree.body[start:] if node not in plain]
    return _laid_out([*tree.body[:start], *(ast.Import([alias]) for alias in aliases), *rest])


def _laid_out(body: Sequence[ast.stmt]) -> str:
    """The statements with two blank lines around definitions, and one behind the imports."""
    text = ""
    for before, node in zip([None, *body], body, strict=False):
        if isinstance(before, _DEFINITIONS) or (before and isinstance(node, _DEFINITIONS)):
            text += "\n\n"
        elif isinstance(before, _IMPORTS) and not isinstance(node, _IMPORTS):
            text += "\n"
        text += render(ast.Module([node], [])).lstrip("\n")
    return text
