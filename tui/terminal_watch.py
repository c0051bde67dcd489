"""What Textual's terminal driver lacks: the browser ends when its terminal is gone, and a damaged key does not end it.

A closed window or a lost connection leaves a terminal that cannot be read or written. Textual's input thread then reads
an end of file again and again, and its output thread ends, so that the event loop waits for it for ever: the process
would stay and use a core. What is typed or pasted faster than it is read loses bytes in the terminal, and some
terminals send no UTF-8: Textual's decoder raises then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from codecs import getincrementaldecoder
from functools import partial

from textual.drivers import linux_driver

_INTERVAL = 1.0  # seconds between two looks at the terminal
_GRACE = 3.0  # seconds that the browser has to end by itself


def accept_damaged_keys() -> None:
    """Let the driver read bytes that are no UTF-8 as replacement characters, which no action has as its key."""

    def decoder(encoding: str) -> object:
        return partial(getincrementaldecoder(encoding), errors="replace")

    linux_driver.getincrementaldecoder = decoder  # type: ignore[assignment, attr-defined]  # no setting for it


def end_with_terminal() -> None:
    """Start the thread that watches standard input. Without a terminal there it does nothing."""
    descriptor = sys.stdin.fileno()
    if os.isatty(descriptor):
        threading.Thread(target=_watch, args=(descriptor,), daemon=True, name="terminal-watch").start()


def _watch(descriptor: int) -> None:
    pause = threading.Event()
    while os.isatty(descriptor):
        pause.wait(_INTERVAL)
    os.kill(os.getpid(), signal.SIGHUP)
    pause.wait(_GRACE)
    os._exit(128 + signal.SIGHUP)
