"""Merges a program and the modules of its own project that it imports into one file.

A module's statements take the place of its first import. Names that two modules bind are told apart by the module's
name. What is installed (a library, the standard library) stays imported.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import os
import pathlib
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minifier.source.scopes import bound_names, new_name, own_nodes
from minifier.source.trees import expression, render

_PACKAGES = {"site-packages", "dist-packages"}
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_FUNCTIONS = frozenset(  # that only compute a path: nothing else of the program is called
    {
        "Path",
        "str",
        "resolve",
        "absolute",
        "dirname",
        "abspath",
        "realpath",
        "join",
        "joinpath",
        "fspath",
        "getcwd",
        "cwd",
    }
)


class MergeError(Exception):
    """A program that cannot be merged into one file. The text says why."""


def merge_program(file: Path, folders: Sequence[Path], package: str = "", *, main: bool = True) -> str:
    """The program in a file, with the modules that it imports, as the text of one file.

    ``folders`` are where its own modules are found, besides those that it adds to `sys.path`. The file may be in a
    package. Without ``main`` it is imported, so what is under ``if __name__ == "__main__"`` does not run.

    Raises `MergeError` if a file cannot be read or is not Python.
    """
    merger = _Merger([str(folder) for folder in folders])
    body = merger.module(file, "__main__" if main else file.stem, package)
    future = [ast.ImportFrom("__future__", [ast.alias(n) for n in sorted(merger.future)], 0)] if merger.future else []
    types = [ast.Import([ast.alias("types")])] if merger.makes_namespaces else []
    module = ast.Module([*future, *types, *body], [])
    return render(module)


@dataclass(slots=True)
class _Merger:
    folders: list[str]
    future: set[str] = field(default_factory=set)
    taken: dict[str, str] = field(default_factory=dict)  # each name, and what it stands for
    exports: dict[str, dict[str, str]] = field(default_factory=dict)  # by module: its names, and what they are now
    makes_namespaces: bool = False  # in which `types` is read

    def module(self, file: Path, name: str, package: str) -> list[ast.stmt]:
        """The statements of a module, with those of the modules that it imports before them."""
        tree = _parse(file)
        self.folders += [str(folder) for folder in _added_folders(tree, file)]
        imports = self.library_imports(tree, package)
        shared = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
        own = {n for n in bound_names(tree) | shared if imports.get(n, "") is not None}
        meaning = {n: imports.get(n) or f"{name}:{n}" for n in own}
        clash = {n for n in own if self.taken.get(n, meaning[n]) != meaning[n]}
        renamed = {n: new_name(f"{name.rpartition('.')[2]}_{n}", {*self.taken, *own}) for n in clash}
        self.exports[name] = {n: renamed.get(n, n) for n in own}
        self.taken |= {new: meaning[old] for old, new in self.exports[name].items()}
        visitor = _Imports(self, package, main=name == "__main__")
        body = visitor.statements(tree.body)
        module = ast.Module(body, [])
        names = {**renamed, **visitor.names}
        if names or visitor.modules:
            rename = _Rename(names, visitor.modules, self.exports)
            module = rename.visit(module)
            self.makes_namespaces |= rename.makes_namespaces
        return [s for s in [*visitor.before, *module.body] if not _is_docstring(s)]

    def library_imports(self, tree: ast.Module, package: str) -> dict[str, str | None]:
        """What each name that the module imports stands for; None for what comes from the project itself."""
        found: dict[str, str | None] = {}
        for node in own_nodes(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    is_own = self.own_module(alias.name) is not None
                    found[alias.asname or alias.name.partition(".")[0]] = None if is_own else alias.name
            elif isinstance(node, ast.ImportFrom):
                source = absolute_name(node, package)
                is_own = bool(source) and self.own_module(source) is not None
                found |= {a.asname or a.name: None if is_own else f"{source}.{a.name}" for a in node.names}
        return found

    def own_module(self, name: str) -> Path | None:
        """The file of a module of the project, or None if it is installed or unknown."""
        paths: list[str] | None = self.folders
        spec = None
        parts = name.split(".")
        for i in range(len(parts)):
            spec = importlib.machinery.PathFinder.find_spec(".".join(parts[: i + 1]), paths)
            if spec is None:
                return None
            paths = list(spec.submodule_search_locations or [])
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return None
        inside = any(Path(spec.origin).is_relative_to(folder) for folder in self.folders)
        installed = not _PACKAGES.isdisjoint(Path(spec.origin).parts) or spec.origin.startswith(_STANDARD_LIBRARY)
        return Path(spec.origin) if inside and not installed else None


def _parse(file: Path) -> ast.Module:
    try:
        with tokenize.open(file) as stream:  # honours a BOM and a coding line
            return ast.parse(stream.read(), str(file))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise MergeError(f"{file.name} cannot be read as Python: {error}") from error


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_main_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)


class _Imports(ast.NodeTransformer):
    """Takes the project's own imports out of a module. ``before`` are the statements of the imported modules."""

    def __init__(self, merger: _Merger, package: str, *, main: bool) -> None:
        self._merger, self._package, self._main = merger, package, main
        self.before: list[ast.stmt] = []
        self.names: dict[str, str] = {}  # what a name of this module is called in the merged file
        self.modules: dict[str, str] = {}  # a name of this module that stands for a module of the project

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        module = self.visit(ast.Module(body, []))
        found: list[ast.stmt] = []
        for node in module.body:
            if _is_main_test(node):
                found += node.body if self._main else node.orelse
            else:
                found.append(node)
        return found

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.stmt | ast.excepthandler) and getattr(node, "body", None) == []:  # it only imported
            node.body = [ast.Pass()]  # type: ignore[union-attr]  # of all that have a body
        return node

    def _include(self, name: str) -> bool:
        """Include a module of the project, once. Returns whether it is one."""
        if name in self._merger.exports:
            return True
        file = self._merger.own_module(name)
        if file is None:
            return False
        self._merger.exports[name] = {}  # it may import this module again
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        self.before += self._merger.module(file, name, package)
        return True

    def visit_Import(self, node: ast.Import) -> ast.stmt | None:
        kept = []
        for alias in node.names:
            if not self._include(alias.name):
                kept.append(alias)
                continue
            head = alias.name.partition(".")[0]
            self.modules[alias.asname or alias.name] = alias.name
            if not alias.asname and head != alias.name:
                self._include(head)
        return ast.Import(kept) if kept else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | None:
        if node.module == "__future__":
            self._merger.future |= {alias.name for alias in node.names}
            return None
        name = absolute_name(node, self._package)
        if not name or not self._include(name):
            return node
        for alias in node.names:
            if alias.name == "*":
                self.names |= self._merger.exports[name]
            elif alias.name not in self._merger.exports[name] and self._include(f"{name}.{alias.name}"):
                self.modules[alias.asname or alias.name] = f"{name}.{alias.name}"
            else:
                self.names[alias.asname or alias.name] = self._merger.exports[name].get(alias.name, alias.name)
        return None


def absolute_name(node: ast.ImportFrom, package: str) -> str:
    """The module that an import names, in a module of this package."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


class _Rename(ast.NodeTransformer):
    """Renames a module's global names where no function hides them, and names of other modules (``signals.sine``).

    A module that is a value (``run(signals)``) becomes an object with the same attributes.
    """

    def __init__(self, names: dict[str, str], modules: dict[str, str], exports: dict[str, dict[str, str]]) -> None:
        self._names, self._modules, self._exports = names, modules, exports
        self._hidden: list[set[str]] = []
        self._stored: list[set[str]] = [set()]  # names of other modules that a function sets
        self.makes_namespaces = False

    def _new(self, name: str) -> str:
        return name if any(name in hidden for hidden in self._hidden) else self._names.get(name, name)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_hidden = any(node.id in hidden for hidden in self._hidden)
        module = self._modules.get(node.id) if isinstance(node.ctx, ast.Load) and not is_hidden else None
        return ast.Name(self._new(node.id), node.ctx) if module is None else self._namespace(module)

    def _namespace(self, module: str) -> ast.Call:
        self.makes_namespaces = True
        attributes = [ast.keyword(old, ast.Name(new, ast.Load())) for old, new in self._exports[module].items()]
        return ast.Call(expression("types.SimpleNamespace"), [], attributes)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        return ast.Global([self._names.get(name, name) for name in node.names])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        module = self._modules.get(ast.unparse(node.value))
        if module is not None and node.attr in self._exports[module]:
            name = self._exports[module][node.attr]
            if not isinstance(node.ctx, ast.Load):
                self._stored[-1].add(name)
            return ast.Name(name, node.ctx)
        whole = self._modules.get(ast.unparse(node))
        return self.generic_visit(node) if whole is None else self._namespace(whole)

    def visit_Import(self, node: ast.Import) -> ast.AST:
        return ast.Import([_renamed_alias(alias, self._new) for alias in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.ImportFrom(node.module, [_renamed_alias(alias, self._new) for alias in node.names], node.level)

    def _scope(self, node: ast.AST) -> ast.AST:
        outer = {name: getattr(node, name) for name in ("decorator_list", "returns") if hasattr(node, name)}
        for name, value in outer.items():
            setattr(node, name, [self.visit(v) for v in value] if isinstance(value, list) else value)
        self._hidden.append(bound_names(node))
        self._stored.append(set())
        self.generic_visit(node)
        self._hidden.pop()
        stored = self._stored.pop()
        if stored and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body.insert(0, ast.Global(sorted(stored)))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._new(node.name)
        return self._scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._new(node.name)
        return self._scope(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._new(node.name)
        return self.generic_visit(node)


def _renamed_alias(alias: ast.alias, new: object) -> ast.alias:
    assert callable(new)
    bound = alias.asname or alias.name.partition(".")[0]
    name = new(bound)
    if name == bound:
        return alias
    return ast.alias(alias.name, name)


def _added_folders(tree: ast.Module, file: Path) -> Iterator[Path]:
    """The folders that statements of a module add: `sys.path.insert(0, str(Path(__file__).parent))`.

    Names are what earlier statements of the module assigned to them.
    """
    names: dict[str, Any] = {"__file__": str(file.absolute()), "os": os, "pathlib": pathlib, "Path": Path}
    for node in tree.body:
        match node:
            case ast.Import(names=[ast.alias(name="os.path" | "pathlib" as module, asname=str(short))]):
                names[short] = os.path if module == "os.path" else pathlib
            case ast.ImportFrom(module="os" | "os.path" as module, names=found):
                home = os if module == "os" else os.path
                names |= {a.asname or a.name: getattr(home, a.name) for a in found if hasattr(home, a.name)}
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _path(value, names)
            case ast.Expr(value=ast.Call(func=function, args=[*_, value])):
                if ast.unparse(function) in ("sys.path.insert", "sys.path.append"):
                    folder = _path(value, names)
                    if isinstance(folder, str):
                        yield Path(folder)


def _path(node: ast.expr, names: dict[str, Any]) -> Any:
    """The value of an expression that computes a path; None for any other expression."""
    calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
    called = {getattr(f, "attr", getattr(f, "id", "")) for f in calls}
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if not called <= _FUNCTIONS or not read <= {*names, "str"}:
        return None
    with contextlib.suppress(Exception):  # what is no path may raise anything
        return eval(ast.unparse(node), {"__builtins__": {"str": str}}, names)  # noqa: S307 - only `_FUNCTIONS` run
    return None
