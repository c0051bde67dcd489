"""Watching a recording that may still be written: has it grown, is it gone?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Watch"]

_OFTEN = 1.0  # seconds between looks
_SHARE = 10  # a reading that took a second is not done again for ten


class Watch:
    """Looks at a file by its size and time; only a live one is read again."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self.live = live
        self.interval = _OFTEN
        self._path = path
        self._seen = self._state()
        self._rest_until = 0.0
        self._gone = False

    def look(self) -> str | None:
        """``"grown"``, ``"gone"`` (once), or ``None``."""
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
        """Around a reading: the longer it takes, the longer until the next."""
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
