"""Puts changed functions of installed packages in place when their modules are imported. No file of theirs is touched.

An overlay (`dynadiag fix --overlay FILE.py`) holds a copy of this file, so that it works where dynadiag is not
installed. This file needs the standard library alone.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import NamedTuple


class Change(NamedTuple):
    """A changed function of a package, or top-level statements that a module gets besides (``function`` is empty).

    ``sha256`` is that of the text of the original function with its decorators, for which the change was proved.
    """

    package: str
    version: str
    module: str
    function: str
    sha256: str
    source: str


class LibraryFinder(MetaPathFinder):
    """Finds a module as Python does, and has it loaded by a loader of ours: made of its name and its file."""

    def __init__(self, loaders: Mapping[str, Callable[[str, str], SourceFileLoader]]) -> None:
        self._loaders = loaders

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that is to be changed; ``None`` for every other module."""
        if fullname not in self._loaders:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if type(spec.loader) is SourceFileLoader:
                    spec.loader = self._loaders[fullname](fullname, spec.loader.path)
                else:
                    warnings.warn(f"{fullname} is not changed: it is not loaded from a source file", stacklevel=2)
                return spec
        return None


class CopiedLoader(SourceFileLoader):
    """Loads a module from the file ``copy``, as the module of its own file."""

    def __init__(self, fullname: str, path: str, copy: str) -> None:
        super().__init__(fullname, path)
        self._copy = copy

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the signature is Python's
        """The code of the copy."""
        return compile(self.get_data(self._copy), self._copy, "exec", dont_inherit=True)


class ChangedLoader(SourceFileLoader):
    """Loads a module with its changes, all or, where one does not fit, none."""

    def __init__(self, fullname: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(fullname, path)
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the changed text. Tracebacks and `inspect` show that text."""
        text = importlib.util.decode_source(self.get_data(self.path))
        try:
            made = changed_text(text, self._changes)
        except ValueError as error:
            warnings.warn(f"overlay: {fullname} is left as it is: {error}", RuntimeWarning, stacklevel=2)
            return super().get_code(fullname)
        linecache.cache[self.path] = (len(made), None, made.splitlines(keepends=True), self.path)
        return compile(self._with_imports_first(ast.parse(made)), self.path, "exec", dont_inherit=True)

    def _with_imports_first(self, module: ast.Module) -> ast.Module:
        """The module with the imports of the changes at its beginning: decorators may need them.

        In the text they stand at its end, so that its lines keep their numbers.
        """
        number = sum(len(ast.parse(change.source).body) for change in self._changes if not change.function)
        own, added = module.body[: len(module.body) - number], module.body[len(module.body) - number :]
        place = next((place for place, node in enumerate(own) if not _stands_first(node)), len(own))
        imports = [node for node in added if isinstance(node, (ast.Import, ast.ImportFrom))]
        rest = [node for node in added if node not in imports]
        module.body[:] = [*own[:place], *imports, *own[place:], *rest]
        return module


def changed_text(text: str, changes: Sequence[Change]) -> str:
    """The text of a module with its changes. Raises `ValueError` where one was proved for another text or version."""
    lines, functions, added = text.split("\n"), list(functions_in(text)), []
    for change in changes:
        try:
            version = importlib.metadata.version(change.package)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        if version != change.version:
            raise ValueError(f"the changes were proved for {change.package} {change.version}, and this is {version}")
        if not change.function:
            added.append(change.source)
            continue
        hashes = (hashlib.sha256(part.encode()).hexdigest() for _, _, _, part in functions)
        fitting = [place for place, found in zip(functions, hashes, strict=True) if found == change.sha256]
        place = next((place for place in fitting if place[0] == change.function), None)
        if place is None:
            raise ValueError(f"{change.function} is not the function that the change was proved for")
        new = change.source.strip("\n").split("\n")
        new += [""] * (place[2] - place[1] - len(new))  # the lines below keep their numbers
        lines[place[1] : place[2]] = ["\n".join(new), *["\0"] * (place[2] - place[1] - 1)]
    return (
        "\n".join(line for line in lines if line != "\0").rstrip("\n") + "\n" + "".join(f"\n\n{each}" for each in added)
    )


def _stands_first(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, or an import of ``__future__``."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def functions_in(text: str) -> Iterator[tuple[str, int, int, str]]:
    """The functions of a module and of its classes: qualified name, first line and line behind the last (0-based), and
    the text, with decorators.
    """
    lines = text.split("\n")
    nodes: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
    while nodes:
        prefix, node = nodes.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)]) - 1
                last = child.end_lineno or child.lineno
                yield f"{prefix}{child.name}", first, last, "\n".join(lines[first:last])
            elif isinstance(child, ast.ClassDef):
                nodes.append((f"{prefix}{child.name}.", child))
            elif isinstance(child, (ast.If, ast.Try, ast.With)):
                nodes.append((prefix, child))


def install(changes: Sequence[Change], torch: str) -> None:
    """Put the changes in place when their modules are imported. What is imported already is left as it is, and so is
    all with another torch than they were proved for: ``torch`` is its version without the patch level.
    """
    if (found := torch_version()) != torch:
        text = f"overlay: nothing is changed: the changes were proved for torch {torch}, and this is {found}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return
    by_module: dict[str, list[Change]] = {}
    for change in changes:
        by_module.setdefault(change.module, []).append(change)
    for name in [name for name in by_module if name in sys.modules]:
        del by_module[name]
        warnings.warn(f"overlay: {name} is left as it is: it is imported already", RuntimeWarning, stacklevel=2)

    def loader(name: str, path: str) -> SourceFileLoader:
        return ChangedLoader(name, path, by_module[name])

    sys.meta_path.insert(0, LibraryFinder(dict.fromkeys(by_module, loader)))


def torch_version() -> str:
    """The version of the installed torch, such as 2.13: what changes use of it may differ in another one."""
    try:
        return ".".join(importlib.metadata.version("torch").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
