"""The modules of packages whose path does not say that they are installed, as far as the program has loaded them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from dynadiag.recording.code_origin import is_stdlib_file, path_in_packages
from dynadiag.recording.package_files import installed_path


def packages_loaded_since(seen: set[str]) -> dict[str, str]:
    """Return the path from its package on of each such file of the modules that are loaded and not in ``seen``.

    Their names are added to ``seen``, so that each module is looked at once. Nothing of a module's own code is called.
    """
    new = set(sys.modules) - seen
    seen |= new
    return {file: inside for file in sorted({*_files(new)}) if (inside := _listed_path(file)) is not None}


@cache
def _listed_path(file: str) -> str | None:
    return None if path_in_packages(file) is not None or is_stdlib_file(file) else installed_path(file)


def _files(names: set[str]) -> Iterator[str]:
    for name in names:
        module = sys.modules.get(name)
        if issubclass(type(module), ModuleType):
            file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
            if isinstance(file, str) and file.endswith(".py"):
                yield file
