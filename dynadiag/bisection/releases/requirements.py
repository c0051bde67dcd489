"""The packages that a program needs beside torch, and the versions of them that its environment has."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from dynadiag.trial.program import Program

# Each release of torch asks for its own versions of these.
_TORCH_FAMILY = re.compile(r"torch|triton|pytorch-triton.*|nvidia-.*|cuda-.*|intel-.*|setuptools|pip|dynadiag")
_ALWAYS = ("numpy",)  # torch uses it where it is there
_MAX_FILES = 200  # files of the program's own that are read for their imports


@functools.cache
def installed_versions() -> Mapping[str, str]:
    """The packages of this environment that an index can have, by their normalised names.

    Without torch and what each release of it pins, and without packages installed from a folder or a URL.
    """
    found: dict[str, str] = {}
    for one in metadata.distributions():
        name = _normalised(one.metadata["Name"] or "")
        if (
            name
            and not _TORCH_FAMILY.fullmatch(name)
            and not one.read_text("direct_url.json")
            and "+" not in one.version
        ):
            found.setdefault(name, one.version)
    return found


def program_packages(program: Program) -> tuple[str, ...]:
    """The packages of this environment that a program imports, itself or through files beside it; sorted."""
    names = {name for file in _files(program) for name in _imports(file)}
    if not program.target.endswith(".py"):
        names.add(program.target.partition(".")[0])
    providers = metadata.packages_distributions()
    wanted = {_normalised(package) for name in names for package in providers.get(name, ())}
    return tuple(sorted(name for name in installed_versions() if name in wanted or name in _ALWAYS))


def _files(program: Program) -> Iterator[Path]:
    """The program's file, and those beside it that it imports, directly or not."""
    main = _main_file(program)
    if main is None:
        return
    package = main.name == "__init__.py"
    folder = main.parent.parent if package else main.parent
    waiting = sorted(main.parent.rglob("*.py")) if package else [main]
    seen: set[Path] = set()
    while waiting and len(seen) < _MAX_FILES:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        yield file
        for name in _imports(file):
            if (module := folder / f"{name}.py").is_file():
                waiting.append(module)
            elif (folder / name).is_dir():
                waiting += sorted((folder / name).rglob("*.py"))


def _main_file(program: Program) -> Path | None:
    if program.target.endswith(".py"):
        return Path(program.target)
    first = program.target.partition(".")[0]
    local = [Path.cwd() / f"{first}.py", Path.cwd() / first / "__init__.py"]
    found = next((path for path in local if path.is_file()), None)
    if found is not None or first in sys.modules:
        return found
    spec = find_spec(first)
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def _imports(file: Path) -> set[str]:
    """The first words of what a file imports. A file that cannot be read or parsed imports nothing."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
