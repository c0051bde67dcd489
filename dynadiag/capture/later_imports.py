"""When torch imports parts of itself after ``import torch``: its compiler is loaded where something is compiled first.

That takes seconds of a start, and torch's trace has no event for it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

_MAX_SPANS = 1000  # imports that are kept


class LaterImports:
    """A finder that times the outermost import of a module of torch's in each thread. It finds nothing by itself."""

    def __init__(self) -> None:
        self._timed: list[tuple[int, float, float]] = []  # by process: a fork has its parent's, too
        self._inside = threading.local()

    @property
    def spans(self) -> list[tuple[float, float]]:
        """The begin and end of each import in this process, in seconds since the epoch."""
        return [(began, ended) for process, began, ended in self._timed if process == os.getpid()]

    def start(self) -> None:
        """Time the imports from now on."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find. The loader tells when it has loaded a module that none of torch's imports."""
        if not name.startswith("torch.") or getattr(self._inside, "now", False) or len(self._timed) >= _MAX_SPANS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((found for each in others if (found := each.find_spec(name, path, target)) is not None), None)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            self._time(spec.loader)
        return spec

    def _time(self, loader: Any) -> None:
        """Let a loader tell how long it takes, once."""

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own is next
            began, self._inside.now = time.time(), True
            try:
                loader.exec_module(module)
            finally:
                self._inside.now = False
                self._timed.append((os.getpid(), began, time.time()))

        loader.exec_module = exec_module
