"""Notices that a rank begins no collective for some time, so that its journal says where it stood.

A rank that hangs is ended by others without a word. A thread looks whether it goes on: after 2 seconds, then 4, 8 and
so on, so that a whole day has 16 looks. It looks at the main thread only if nothing has happened meanwhile.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

__all__ = ["StandstillWatch"]

_FIRST = 2.0  # seconds without a collective


class StandstillWatch:
    """Calls ``stood`` with a time and the main thread's frame while what ``progress`` returns stays the same."""

    def __init__(
        self, progress: Callable[[], object], stood: Callable[[float, FrameType], None], first: float = _FIRST
    ) -> None:
        self._progress = progress
        self._stood = stood
        self._first = first
        self._ended = threading.Event()

    def start(self) -> None:
        """Watch until `stop`, or until the process ends. A fork has no such thread."""
        with contextlib.suppress(RuntimeError):  # no thread is left: all else is recorded still
            threading.Thread(target=self._run, name="dynadiag-standstill", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # a thread of ours must print no traceback into the program's output
            self._watch()

    def _watch(self) -> None:
        known, since, pause = self._progress(), time.time(), self._first
        while not self._ended.wait(pause):
            now = self._progress()
            if now == known:
                pause *= 2
                self._look(since)
            else:
                known, since, pause = now, time.time(), self._first

    def _look(self, since: float) -> None:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        if frame is not None:
            self._stood(since, frame)
