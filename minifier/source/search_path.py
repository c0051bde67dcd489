"""Finds the folders that a program adds to `sys.path`, as far as its text says."""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

__all__ = ["added_folders"]

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


def added_folders(tree: ast.Module, file: pathlib.Path) -> Iterator[pathlib.Path]:
    """The folders that statements of a module add: `sys.path.insert(0, str(Path(__file__).parent))`.

    Names are what earlier statements of the module assigned to them.
    """
    names: dict[str, Any] = {"__file__": str(file.absolute()), "os": os, "pathlib": pathlib, "Path": pathlib.Path}
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
                        yield pathlib.Path(folder)


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
