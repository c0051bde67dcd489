"""What the commands share: their common options, where results go, colours."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.render.style import Style

__all__ = [
    "add_json",
    "add_output",
    "new_recording",
    "say_where",
    "state_folder",
    "style_for",
    "write_file",
    "write_json",
]


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """``-o/--output`` and ``--force``."""
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=what)
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json FILE``."""
    parser.add_argument("--json", metavar="FILE", help="also write the result as JSON; - for stdout, then without text")


def state_folder() -> Path:
    """Where recordings go when no name is given: never the current folder."""
    base = os.environ.get("XDG_STATE_HOME")
    return Path(base or Path.home() / ".local" / "state") / "dynadiag"


def new_recording(output: Path | None, target: str, *, force: bool) -> Path:
    """The path for a new recording: as asked for, or a fresh name in the state folder.

    Raises `DynadiagError` where it exists and ``force`` is not given, or its folder cannot be made.
    """
    if output is not None:
        if output.exists() and not force:
            raise DynadiagError(f"{output} exists: give another name, or --force to overwrite it")
        if not output.absolute().parent.is_dir():
            raise DynadiagError(f"{output}: there is no folder {output.absolute().parent}")
        output.unlink(missing_ok=True)
        return output
    stem = re.sub(r"[^\w.-]+", "_", Path(target.split(":")[0]).stem)[:60] or "run"
    folder = state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DynadiagError(f"cannot make {folder}: {error.strerror}; name a file with -o") from error
    return folder / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.dynadiag"


def write_json(destination: str | None, document: bytes) -> None:
    """Write a JSON document where ``--json`` says. Raises `DynadiagError` where that cannot be written."""
    if destination == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(document)
        sys.stdout.flush()
    elif destination is not None:
        try:
            Path(destination).write_bytes(document)
        except OSError as error:
            raise DynadiagError(f"cannot write {destination}: {error.strerror}") from error


def write_file(path: Path, content: bytes, *, force: bool) -> None:
    """Write a result. Raises `DynadiagError` where it exists and ``force`` is not given, or cannot be written."""
    if path.exists() and not force:
        raise DynadiagError(f"{path} exists: give another name, or --force to overwrite it")
    try:
        path.write_bytes(content)
    except OSError as error:
        raise DynadiagError(f"cannot write {path}: {error.strerror}") from error


def style_for(stream: object) -> Style:
    """Colours on a terminal and none in a pipe; ``NO_COLOR`` and ``FORCE_COLOR`` as everywhere."""
    terminal = bool(getattr(stream, "isatty", lambda: False)())
    color = terminal and os.environ.get("TERM") != "dumb"
    if os.environ.get("NO_COLOR"):
        color = False
    elif os.environ.get("FORCE_COLOR"):
        color = True
    return Style(width=shutil.get_terminal_size((100, 24)).columns, color=color)


def say_where(path: Path) -> None:
    """The path of what was written, as the last line on stderr."""
    print(path, file=sys.stderr, flush=True)  # noqa: T201 - the contract's last line
