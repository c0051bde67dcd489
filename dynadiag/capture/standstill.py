"""A watchdog that notices that a rank begins no collective for some time, so that its journal says where it stands.

A rank that hangs is killed from outside, and records no end. A thread checks for progress after 2 seconds, then after
4, 8 and so on: 16 times a day. It reads the frame of the main thread only if there was no progress.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

__all__ = ["StandstillWatch"]

_FIRST_PAUSE = 2.0  # seconds without a collective


class StandstillWatch:
    """Calls ``on_standstill`` with the time of the last progress, and the main thread's frame, while there is none.

    There is progress if ``progress`` returns something else than before.
    """

    def __init__(
        self,
        progress: Callable[[], object],
        on_standstill: Callable[[float, FrameType], None],
        first: float = _FIRST_PAUSE,
    ) -> None:
        self._progress = progress
        self._on_standstill = on_standstill
        self._first = first
        self._ended = threading.Event()

    def start(self) -> None:
        """Watch until `stop`, or until the process ends. A fork has no such thread."""
        with contextlib.suppress(RuntimeError):  # no thread can be started: everything else is still recorded
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
            self._on_standstill(since, frame)
