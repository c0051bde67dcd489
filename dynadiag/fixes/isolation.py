"""What a run of a call with other inputs is held to: its output is collected, and it has a limit of time."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dynadiag.fixes.printed_output import comparable


class TooLong(BaseException):  # no handler of the program's catches it
    """A call with other inputs did not end in time."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TooLong` in what runs longer. There is no limit outside of the main thread, which alone gets signals."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def captured_output() -> Iterator[list[bytes]]:
    """Collect what is printed, by Python and by libraries, in place of printing it."""
    found: list[bytes] = []
    with tempfile.TemporaryFile() as file, _redirected(file.fileno()):
        yield found
        _flush()
        file.seek(0)
        found.append(file.read())


@contextmanager
def every_warning() -> Iterator[None]:
    """Show each warning as often as it is given, but for those that the program ignores or makes errors.

    The program's filters stay: a change may have put the call into a context that sets them.
    """
    with warnings.catch_warnings():
        filters: list[Any] = list(warnings.filters)
        warnings.resetwarnings()
        for action, message, category, module, line in filters:
            shown: Any = action if action in ("ignore", "error") else "always"
            texts = [str(getattr(each, "pattern", each or "")) for each in (message, module)]
            warnings.filterwarnings(shown, texts[0], category, texts[1], line, append=True)
        warnings.simplefilter("always", append=True)
        yield


@contextmanager
def silence() -> Iterator[None]:
    """Print nothing, from Python or from libraries."""
    with Path(os.devnull).open("wb") as nowhere, _redirected(nowhere.fileno()):
        yield


@contextmanager
def _redirected(descriptor: int) -> Iterator[None]:
    _flush()
    saved = os.dup(1), os.dup(2)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        _flush()
        for kept, target in zip(saved, (1, 2), strict=True):
            os.dup2(kept, target)
            os.close(kept)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the program may have replaced or closed it
            stream.flush()


def printed_text(printed: list[bytes]) -> str:
    """What `captured_output` collected, comparable."""
    return comparable(b"".join(printed).decode("utf-8", "replace"))
