"""Watches a recording file: has it grown, was it deleted?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["FileWatch"]

_CHECK_INTERVAL = 1.0  # seconds between two checks
_REREAD_FACTOR = 10  # if reading took one second, the next reading is ten seconds later


class FileWatch:
    """Checks a file by its size and modification time. Only a live recording is read again."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self.live = live
        self.interval = _CHECK_INTERVAL
        self._path = path
        self._last_state = self._state()
        self._next_check = 0.0
        self._gone = False

    def check(self) -> str | None:
        """Return ``"grown"``, ``"gone"`` (once), or ``None``."""
        state = self._state()
        if state is None:
            gone, self._gone = self._gone, True
            return None if gone else "gone"
        self._gone = False
        if not self.live or state == self._last_state or time.monotonic() < self._next_check:
            return None
        self._last_state = state
        return "grown"

    @contextmanager
    def backing_off(self) -> Iterator[None]:
        """Measure a reading: the longer it takes, the later the next one."""
        start = time.monotonic()
        try:
            yield
        finally:
            end = time.monotonic()
            self._next_check = end + _REREAD_FACTOR * (end - start)

    def _state(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns
