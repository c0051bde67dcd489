"""What the commands share: how a result is printed, colors, types of options."""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from dynadiag.commands.outputs import write_document
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.markdown import escape_commands
from dynadiag.render.printer import Printer

INTERRUPTED = 130  # the exit code after Ctrl-C, as a shell gives it
STDERR = 2  # the descriptor
N = TypeVar("N", int, float)
Options = argparse._ActionsContainer  # a parser, or a group of its options
# C1 controls, zero-width and bidi controls, line separators. In JSON they can occur only inside strings.
_CONTROL_CHARS = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM (the time limit of a CI job) and SIGHUP (a terminal that closes) interrupt the block as Ctrl-C does.

    One that is ignored stays so, as `nohup` has it.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def write_json(destination: str | None, document: bytes) -> None:
    """Write a JSON document to the destination of ``--json``. Raises `DynadiagError` if that is not possible."""
    if destination == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(_escape_controls(document))
        sys.stdout.flush()
    elif destination is not None:
        write_document(destination, document)


def write_result(destination: str | None, document: bytes, text: Callable[[Printer], str]) -> None:
    """Print the text of a result unless its JSON goes to stdout, and write the JSON if ``--json`` is given.

    The text comes first: it is there even if the JSON cannot be written.
    """
    if destination != "-":
        print_text(text(printer_for(sys.stdout)))
    write_json(destination, document)


def _escape_controls(document: bytes) -> bytes:
    """Escape the characters that JSON allows in strings but that control a terminal."""
    text = _CONTROL_CHARS.sub(lambda found: f"\\u{ord(found[0]):04x}", document.decode())
    return text.encode()


def printer_for(stream: object, *, all_: bool = False) -> Printer:
    """Return the printer of a stream: colors on a terminal only. ``NO_COLOR`` and ``FORCE_COLOR`` override that.

    ``all_`` is what ``--all`` says: nothing is left out of long lists.
    """
    terminal = bool(getattr(stream, "isatty", lambda: False)())
    color = terminal and os.environ.get("TERM") != "dumb"
    if os.environ.get("NO_COLOR"):
        color = False
    elif os.environ.get("FORCE_COLOR"):
        color = True
    return Printer(width=shutil.get_terminal_size((100, 24)).columns, color=color, all_=all_)


def width_of(stream: object) -> int | None:
    """Return the columns of a terminal, or those that ``COLUMNS`` names. A file has no width, so its lines are never
    cut.
    """
    terminal = bool(getattr(stream, "isatty", lambda: False)())
    return printer_for(stream).columns if terminal or os.environ.get("COLUMNS") else None


def print_text(text: str) -> None:
    sys.stdout.write(for_log(text))
    sys.stdout.flush()


def for_log(text: str) -> str:
    """Return a text for a log. A runner of GitHub Actions takes some lines for commands, so there they are escaped."""
    return escape_commands(text) if os.environ.get("GITHUB_ACTIONS") == "true" else text


def print_path(path: Path) -> None:
    """Print the path of a result as the last line on stderr."""
    shown = for_log(clean(str(path)).replace("\n", "\\n").replace("\t", "\\t"))
    print(shown, file=sys.stderr, flush=True)  # noqa: T201 - the last line on stderr is the path


def print_error(text: str) -> None:
    """Print what went wrong, or how far a program is, as one line on stderr, where the command goes on."""
    print(for_log(f"dynadiag: {clean_line(text)}"), file=sys.stderr, flush=True)  # noqa: T201 - the command line reports


def _number(read: Callable[[str], N], allowed: Callable[[N], bool], told: str) -> Callable[[str], N]:
    """The type of an option that takes a finite number; ``told`` says which numbers are allowed."""

    def number(text: str) -> N:
        value = read(text)
        if not (math.isfinite(value) and allowed(value)):
            raise argparse.ArgumentTypeError(f"{text}: give {told}")
        return value

    return number


def add_count(parser: Options, option: str, what: str, told: str, default: int | None = None) -> None:
    """Add an option that takes a whole number of ``what`` (``"calls"``), 1 or more."""
    number = _number(int, lambda value: value >= 1, f"a number of {what}, 1 or more")
    parser.add_argument(option, type=number, default=default, metavar="N", help=told)


def add_amount(parser: Options, option: str, what: str, unit: str, told: str, default: float | None = None) -> None:
    """Add an option that takes ``what`` (``"a size in gigabytes"``), more than 0."""
    number = _number(float, lambda value: value > 0, f"{what}, more than 0")
    parser.add_argument(option, type=number, default=default, metavar=unit, help=told)


def add_flag(parser: Options, option: str, told: str) -> None:
    """Add an option that is on or off."""
    parser.add_argument(option, action="store_true", help=told)


number_from_0 = _number(float, lambda value: value >= 0, "a number, 0 or more")


def split_names(text: str) -> tuple[str, ...]:
    """The type of an option that takes names, separated by commas."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r}: give names, separated by commas")
    return names


def names_among(known: Collection[str], what: str) -> Callable[[str], tuple[str, ...]]:
    """Return the type of an option that takes names of these; ``what`` is what they name."""

    def names(text: str) -> tuple[str, ...]:
        given = split_names(text)
        if unknown := [name for name in given if name not in known]:
            raise argparse.ArgumentTypeError(f"no such {what}: {', '.join(unknown)}. There are {', '.join(known)}")
        return given

    return names
