"""The modules of packages whose path does not say that they are installed, as far as the program has loaded them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from dynadiag.recording.code_origin import is_stdlib_file, path_in_packages
from dynadiag.recording.package_files import installed_path


class LoadedPackages:
    """Looks at each loaded module once. Nothing of a module's own code is called."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def new_files(self) -> dict[str, str]:
        """The path from its package on of each such file, of the modules that were loaded since the last call."""
        new = set(sys.modules) - self._seen
        self._seen |= new
        files = {file for file in self._files(new) if path_in_packages(file) is None and not is_stdlib_file(file)}
        return {file: inside for file in sorted(files) if (inside := installed_path(file)) is not None}

    def _files(self, names: set[str]) -> Iterator[str]:
        for name in names:
            module = sys.modules.get(name)
            if issubclass(type(module), ModuleType):
                file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
                if isinstance(file, str) and file.endswith(".py"):
                    yield file
