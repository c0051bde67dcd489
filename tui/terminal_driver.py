"""Textual's terminal driver, but the browser ends when its terminal is gone, and a damaged key does not end it.

A closed window or a lost connection leaves a terminal that reads as an end of file and cannot be written. Textual's
input thread then reads for ever, its output thread ends, the event loop waits for that thread, and an error is printed
to a terminal that is no longer there. What is typed or pasted faster than it is read loses bytes in the terminal, and
some terminals send no UTF-8: Textual's decoder raises then. What an encoding other than UTF-8 does not have is written
as ASCII of the same width.
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.cells import cell_len
from textual._xterm_parser import XTermParser  # Textual has no public parser of keys
from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App

HUNG_UP = 128 + signal.SIGHUP  # the exit code of a program whose terminal is gone, as a shell shows it
_GONE = (errno.EIO, errno.ENXIO)  # what reading, writing and asking such a terminal fail with
_GRACE = 3.0  # seconds that the browser has to end by itself
_TICK = 0.1  # seconds after which an escape is a key, and not the start of a sequence
_BLOCK = 4096  # bytes read at once
_ASCII = str.maketrans(
    "│┃║▌█▒┆╭╮╰╯┌┐└┘├┤┬┴┼─━═▔▁▂▃▄▅▆▇▸▹▾▼▲◂◀▶●○■◆·…→←↑↓↻✓✗✘⚠⏎⌫≠▏╷╶╵╴╤╝╚╗╔µ",
    "|||||::+++++++++++++----------->>vv^<<>*o#*..><^v~+xx!<<~||-|-+++++u",
)  # what the screens are drawn with


def has_hung_up() -> bool:
    """Whether standard input is a terminal that is gone. What never was a terminal has not hung up."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return error.args[0] in _GONE
    return False


class TerminalDriver(LinuxDriver):
    """Ends the browser as SIGHUP does when its terminal is gone."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        is_terminal = sys.__stderr__ is not None and sys.__stderr__.isatty()  # Textual's choice; it may be redirected
        self._file = cast("Any", _Output(cast("TextIO", sys.__stderr__ if is_terminal else sys.__stdout__)))

    def run_input_thread(self) -> None:
        """Dispatch what is typed until the browser ends or the terminal is gone."""
        parser = XTermParser(self._debug)
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode  # no key is what it replaces with
        while not self.exit_event.is_set():
            if select.select([self.fileno], [], [], _TICK)[0]:
                if not (keys := _read(self.fileno)):
                    _end_without_terminal()
                    return
                if text := decode(keys):
                    for event in parser.feed(text):
                        self.process_message(event)
            for event in parser.tick():
                self.process_message(event)


def _read(descriptor: int) -> bytes:
    """Return what is typed, nothing if the terminal is gone."""
    try:
        return os.read(descriptor, _BLOCK)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return b""


def _plain(error: UnicodeError) -> tuple[str, int]:
    """ASCII of the same width for what an encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    letters = (letter.translate(_ASCII) for letter in error.object[error.start : error.end])
    return "".join(one if one.isascii() else "?" * cell_len(one) for one in letters), error.end


codecs.register_error("dynadiag-plain", _plain)


def encodable(text: str, encoding: str) -> str:
    """Return a text with ASCII for what an encoding does not have, of the same width."""
    return text.encode(encoding, "dynadiag-plain").decode(encoding)


class _Output:
    """The terminal to write to, also when it is gone."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._encoding = file.encoding or "utf-8"

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, text: str) -> None:
        self._try(lambda: self._file.write(encodable(text, self._encoding)))

    def flush(self) -> None:
        self._try(self._file.flush)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            if error.errno not in _GONE:
                raise
            _end_without_terminal()


def _end_without_terminal() -> None:
    """End the browser. The null device replaces the terminal, so that all that is written on the way out succeeds."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.close(null)
    os.kill(os.getpid(), signal.SIGHUP)
    late = threading.Timer(_GRACE, os._exit, (HUNG_UP,))
    late.daemon = True
    late.start()
