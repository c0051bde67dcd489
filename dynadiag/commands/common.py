"""What the commands share: options, output files, colors."""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import unused_path
from dynadiag.recording.store import atomic_write
from dynadiag.render.clean import clean
from dynadiag.render.markdown import escape_commands
from dynadiag.render.printer import Printer

__all__ = [
    "INTERRUPTED",
    "STDERR",
    "add_json",
    "add_output",
    "check_json_path",
    "check_writable",
    "for_log",
    "new_recording",
    "positive_int",
    "positive_number",
    "print_path",
    "print_text",
    "printer_for",
    "state_folder",
    "tolerance",
    "width_of",
    "write_file",
    "write_json",
    "write_result",
]
INTERRUPTED = 130  # the exit code after Ctrl-C, as a shell gives it
STDERR = 2  # the descriptor
# C1 controls, zero-width and bidi controls, line separators. In JSON they can occur only inside strings.
_CONTROL_CHARS = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``-o/--output`` and ``--force``."""
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=what)
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json FILE``."""
    parser.add_argument(
        "--json", metavar="FILE", help="also write the result as JSON; - writes it to stdout instead of the text"
    )


def state_folder() -> Path:
    """Return the folder for recordings without a name of their own. It is never the current folder."""
    base = os.environ.get("XDG_STATE_HOME")
    return Path(base or Path.home() / ".local" / "state") / "dynadiag"


def new_recording(output: Path | None, target: str, *, force: bool) -> Path:
    """Return the path of a new recording: `output` if given, otherwise a new name in the state folder.

    Deletes the file that it replaces. Raises `DynadiagError` if that file exists and ``force`` is not given, or if its
    folder cannot be created or written.
    """
    if output is not None:
        check_writable(output, force=force)
        output.unlink(missing_ok=True)
        return output
    folder = state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DynadiagError(f"cannot make {folder}: {error.strerror}; name a file with -o") from error
    return unused_path(folder, target)


def check_writable(path: Path, *, force: bool) -> None:
    """Raise `DynadiagError` if a result cannot be written to `path`, or if it exists without ``force``.

    Called before long work.
    """
    try:
        if path.is_dir():
            raise DynadiagError(f"{path} is a folder: name a file")
        if path.exists() and not force:
            raise DynadiagError(f"{path} exists: give another name, or --force to overwrite it")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise DynadiagError(f"{path}: there is no folder {folder}")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise DynadiagError(f"cannot write {path}: permission denied")
    except (OSError, ValueError) as error:  # a name too long, a loop of links
        raise DynadiagError(f"cannot write {str(path)[:200]}: {getattr(error, 'strerror', None) or error}") from error


def check_json_path(destination: str | None) -> None:
    """Raise `DynadiagError` if the destination of ``--json`` cannot be written. It may exist."""
    if destination not in (None, "-"):
        check_writable(Path(destination), force=True)


def write_json(destination: str | None, document: bytes) -> None:
    """Write a JSON document to the destination of ``--json``. Raises `DynadiagError` if that is not possible."""
    if destination == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(_escape_controls(document))
        sys.stdout.flush()
    elif destination is not None:
        check_json_path(destination)
        _write(Path(destination), document)


def write_result(destination: str | None, document: bytes, text: Callable[[Printer], str]) -> None:
    """Write a result as JSON if ``--json`` is given, and print its text unless the JSON goes to stdout."""
    write_json(destination, document)
    if destination != "-":
        print_text(text(printer_for(sys.stdout)))


def _escape_controls(document: bytes) -> bytes:
    """Escape the characters that JSON allows in strings but that control a terminal."""
    text = _CONTROL_CHARS.sub(lambda found: f"\\u{ord(found[0]):04x}", document.decode())
    return text.encode()


def write_file(path: Path, content: bytes, *, force: bool) -> None:
    """Write bytes to a file. Raises `DynadiagError` if it exists and ``force`` is not given, or on an error."""
    check_writable(path, force=force)
    _write(path, content)


def _write(path: Path, content: bytes) -> None:
    """Write a file completely or not at all. A pipe or a terminal is written to directly."""
    if path.exists() and not path.is_file():
        try:
            path.write_bytes(content)
        except OSError as error:
            raise DynadiagError(f"cannot write {path}: {error.strerror}") from error
        return
    with atomic_write(path, True) as scratch:
        scratch.write_bytes(content)


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
    """Print a report on stdout."""
    sys.stdout.write(for_log(text))
    sys.stdout.flush()


def for_log(text: str) -> str:
    """Return a text for a log. A runner of GitHub Actions takes some lines for commands, so there they are escaped."""
    return escape_commands(text) if os.environ.get("GITHUB_ACTIONS") == "true" else text


def print_path(path: Path) -> None:
    """Print the path of a result as the last line on stderr."""
    shown = for_log(clean(str(path)).replace("\n", "\\n").replace("\t", "\\t"))
    print(shown, file=sys.stderr, flush=True)  # noqa: T201 - the last line on stderr is the path


def tolerance(args: argparse.Namespace) -> tuple[float, float] | None:
    """Return (rtol, atol) of ``--rtol`` and ``--atol``. None if neither is given: each dtype has its own tolerance."""
    return None if args.rtol is None and args.atol is None else (args.rtol or 0.0, args.atol or 0.0)


def positive_int(what: str) -> Callable[[str], int]:
    """Return the type of an option that takes a whole number of ``what`` (``"calls"``), 1 or more."""

    def number(text: str) -> int:
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"{text}: give a number of {what}, 1 or more")
        return value

    return number


def positive_number(what: str) -> Callable[[str], float]:
    """Return the type of an option that takes ``what`` (``"a size in gigabytes"``), finite and more than 0."""

    def number(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and value > 0):
            raise argparse.ArgumentTypeError(f"{text}: give {what}, more than 0")
        return value

    return number
