"""The modules of packages whose path does not say that they are installed, as far as the program has loaded them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from dynadiag.recording.code_origin import is_stdlib_file, path_in_packages
from dynadiag.recording.package_files import installed_path


def packages_loaded_since(seen: set[str]) -> dict[str, str]:
    """Return the path from its package on of each such file of the modules that are loaded and not in ``seen``.

    Their names are added to ``seen``, so that each module is looked at once. Nothing of a module's own code is called.
    """
    new = set(sys.modules) - seen
    seen |= new
    files = {file for file in _files(new) if path_in_packages(file) is None and not is_stdlib_file(file)}
    return {file: inside for file in sorted(files) if (inside := installed_path(file)) is not None}


def _files(names: set[str]) -> Iterator[str]:
    for name in names:
        module = sys.modules.get(name)
        if issubclass(type(module), ModuleType):
            file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
            if isinstance(file, str) and file.endswith(".py"):
                yield file
