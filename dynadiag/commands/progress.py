"""Progress of long work on stderr, and its time limit. A terminal has one line that changes, a pipe a line a trial."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any, TextIO

from dynadiag.commands.common import for_log
from dynadiag.explanation.formatting import STATUS_WORDS
from dynadiag.render.clean import clean_line

_MAX_STATUS = 110  # characters of the line that changes
_LONG = 60.0  # seconds of a run after which its limit is told


class ProgressPrinter:
    """Prints progress. As a context manager it clears the changing line before the report is printed.

    With ``live`` the stream has one line that changes: a notebook shows it as a terminal does.
    """

    def __init__(self, stream: TextIO, *, live: bool | None = None) -> None:
        self._stream = stream
        self._live = stream.isatty() if live is None else live
        self._start = time.monotonic()
        self._first_run: Timer | None = None

    def __enter__(self) -> ProgressPrinter:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    @contextmanager
    def first_run(self, limit: float) -> Iterator[None]:
        """Say after a minute of the program's first run when the run is stopped, since it may hang. Nothing is said
        once a trial or the block has ended.
        """
        told = f"the program has run for {_LONG:.0f} s; it is stopped after {limit:.0f} s (--timeout S)"
        self._first_run = Timer(_LONG, self.message, (told,))
        self._first_run.daemon = True
        if limit > _LONG:
            self._first_run.start()
        try:
            yield
        finally:
            self._first_run.cancel()

    def on_trial(self, number: int, label: str, status: str, seconds: float) -> None:
        if self._first_run is not None:
            self._first_run.cancel()
        text = for_log(clean_line(f"trial {number}: {label}: {STATUS_WORDS.get(status, status)} ({seconds:.1f} s)"))
        if self._live:
            elapsed = time.monotonic() - self._start
            self.status(f"{elapsed:.0f} s  {text}")
        else:
            self._stream.write(text + "\n")
            self._stream.flush()

    def status(self, text: str) -> None:
        """Show how far the present step is. Only a terminal gets it."""
        if self._live:
            self._stream.write(f"\r\x1b[K{clean_line(text)[:_MAX_STATUS]}")
            self._stream.flush()

    def message(self, text: str) -> None:
        self._clear()
        self._stream.write(for_log(clean_line(text)) + "\n")
        self._stream.flush()

    def _clear(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")


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

    def __exit__(self, *_: object) -> None:
        if self._seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, *_: Any) -> None:
        self.went_off = True
        raise KeyboardInterrupt
