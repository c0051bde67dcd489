"""A time limit for a block of code: when the time is over, the block is interrupted as by Ctrl-C."""

from __future__ import annotations

import signal
from types import TracebackType
from typing import Any


class Alarm:
    """Raises `KeyboardInterrupt` in its block after ``seconds`` (``None``: never).

    Every long part of a command handles Ctrl-C: it keeps what it has found. ``went_off`` says whether the time is over.
    For the main thread only.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.went_off = False

    def __enter__(self) -> Alarm:
        if self._seconds is not None:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, max(self._seconds, 1e-3))  # 0 would mean never
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, *_: Any) -> None:
        self.went_off = True
        raise KeyboardInterrupt
