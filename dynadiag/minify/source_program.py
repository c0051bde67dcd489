"""The text of a program as one file, with its imports of libraries."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.minify.pytest_call import with_test_call
from dynadiag.trial.program import Program, TargetError
from minifier.source import MergeError, merge_program

_MAX_FILE, _MAX_NAME = 1 << 20, 200  # bytes of a file that candidates get, and characters of its name
_CALL = "call = {name}()\ntorch.compile(call[0])(*call[1], **(call[2] if len(call) == 3 else {{}}))\n"


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """A program as one file. ``imports`` are its import statements of libraries, ``files`` the data files beside it
    that its text names, by their relative paths.
    """

    text: str
    imports: tuple[str, ...]
    files: dict[str, Path]


def read_program(program: Program) -> ProgramSource:
    """The program and the modules of its project as one file. Raises `MergeError` if that cannot be made."""
    file, folder, package = _file(program)
    folders = [folder, Path.cwd()] if program.module else [folder]
    is_main = program.name is None and program.test is None
    text = merge_program(file, folders, package, main=is_main)
    if program.test is not None:
        text = with_test_call(text, program.test)
    if program.name is not None:
        text = f"{text}import torch\n{_CALL.format(name=program.name)}"
    if program.arguments:
        text = insert_first(text, f"import sys\nsys.argv[1:] = {list(program.arguments)!r}\n")
    return ProgramSource(text, _imports(text), _named_files(text, [Path.cwd(), file.parent]))


def _file(program: Program) -> tuple[Path, Path, str]:
    """The program's file, the folder that its modules are found in, and the package of its relative imports."""
    if program.target.endswith(".py"):
        return Path(program.target), Path(program.target).parent, ""
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(program.target)
        if spec is not None and spec.submodule_search_locations is not None and program.module:
            spec = importlib.util.find_spec(f"{program.target}.__main__")
    except ImportError as error:
        raise TargetError(f"{program.text}: {error}. Run it from the folder that holds it.") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise MergeError(f"{program.text} has no Python source")
    return Path(spec.origin), Path.cwd(), spec.parent or ""


def _named_files(text: str, folders: Sequence[Path]) -> dict[str, Path]:
    """The small files that a string of the program names, relative to one of the folders."""
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    names = {name for name in strings if isinstance(name, str) and 0 < len(name) < _MAX_NAME and "\0" not in name}
    found: dict[str, Path] = {}
    for name in sorted(names):
        for folder in folders:
            path = folder / name
            if not Path(name).is_absolute() and path.is_file() and path.stat().st_size <= _MAX_FILE:
                found.setdefault(name, path)
    return {name: path for name, path in found.items() if ".." not in Path(name).parts}


def insert_first(text: str, more: str) -> str:
    """The program with other statements before its first."""
    lines = text.splitlines(keepends=True)
    first = sum(line.startswith("from __future__") for line in lines[:1])
    return "".join([*lines[:first], more, *lines[first:]])


def _imports(text: str) -> tuple[str, ...]:
    found = [ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return tuple(dict.fromkeys(statement for statement in found if "__future__" not in statement))
