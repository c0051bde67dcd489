"""Watches a recording file: has it grown, was it deleted?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Watch"]

_OFTEN = 1.0  # seconds between two checks
_SHARE = 10  # if reading took one second, the next reading is ten seconds later


class Watch:
    """Checks a file by its size and modification time. Only a live recording is read again."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self.live = live
        self.interval = _OFTEN
        self._path = path
        self._seen = self._state()
        self._rest_until = 0.0
        self._gone = False

    def look(self) -> str | None:
        """Return ``"grown"``, ``"gone"`` (once), or ``None``."""
        state = self._state()
        if state is None:
            gone, self._gone = self._gone, True
            return None if gone else "gone"
        self._gone = False
        if not self.live or state == self._seen or time.monotonic() < self._rest_until:
            return None
        self._seen = state
        return "grown"

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure a reading: the longer it takes, the later the next one."""
        start = time.monotonic()
        try:
            yield
        finally:
            end = time.monotonic()
            self._rest_until = end + _SHARE * (end - start)

    def _state(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns
