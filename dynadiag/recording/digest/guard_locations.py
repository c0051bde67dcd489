"""The user's line of each guard, for the recompiles that name it later.

A log of many large compiles has hundreds of thousands of guards. So those of a compile are kept compressed, some 20
bytes each and not 200, and memory hardly grows with the log.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

_MAX_GUARDS = 500_000  # a large model's compile has thousands
_Lines = dict[str, Sequence[Any]]  # from the guard's source to file and line


class GuardLocations:
    """Lines by compile and source of the guard. The guards of one compile come one after the other."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self._open: tuple[str, _Lines] = "", {}
        self._known = 0  # how many lines of the open compile are packed already
        self._count = 0

    def add(self, compile_id: str, source: str, file: str, line: int | None) -> None:
        """Add the line of a guard. The first one of a source counts."""
        if self._count < _MAX_GUARDS:
            self._count += 1
            self._lines_of(compile_id).setdefault(source, (file, line))

    def find(self, compile_id: str, source: str) -> tuple[str, int | None] | None:
        """Return the line of the guard on a source, None if it has none."""
        if compile_id != self._open[0] and compile_id not in self._packed:
            return None
        found = self._lines_of(compile_id).get(source)
        return None if found is None else (found[0], found[1])

    def _lines_of(self, compile_id: str) -> _Lines:
        """The lines of one compile, which stay unpacked until another is asked for."""
        last, lines = self._open
        if compile_id != last:
            if len(lines) != self._known:
                self._packed[last] = zlib.compress(json.dumps(lines).encode(), level=1)
            packed = self._packed.get(compile_id)
            self._open = compile_id, {} if packed is None else json.loads(zlib.decompress(packed))
            self._known = len(self._open[1])
        return self._open[1]
