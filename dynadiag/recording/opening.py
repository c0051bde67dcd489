"""Opening whatever a user names: a recording, a journal that nobody has folded yet, or a TORCH_TRACE log.

A ``.dynadiag`` file may still be a journal: of a program that runs, that crashed together with the recorder, or that
recorded itself on a cluster. Whoever opens it folds it in place once its process is gone.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import orjson

from dynadiag.errors import UnreadableInput
from dynadiag.recording.digest import Digest
from dynadiag.recording.fold import fold
from dynadiag.recording.reader import Recording

__all__ = ["fold_in_place", "is_journal", "journal_header", "open_any", "recordings_in"]

_SQLITE = b"SQLite format 3\x00"
_HEADER = b'{"dynadiag_run": '
_LOOK = 1 << 16  # bytes of a file's beginning that are looked at


def open_any(path: Path) -> Recording:
    """Open a recording, or fold a journal and open that. Raises `UnreadableInput`.

    The journal of a process that still runs is folded into a scratch file, and stays as it is.
    """
    if is_journal(path):
        if _running(path):
            return _snapshot(path)
        fold_in_place(path)
    return Recording(path)


def recordings_in(folder: Path) -> tuple[Path, ...]:
    """The recordings of a folder that processes recorded themselves into, rank by rank."""
    found = tuple(sorted(folder.glob("*.dynadiag")))
    if not found:
        raise UnreadableInput(f"{folder}: no recording in this folder (they are named *.dynadiag)")
    return found


def is_journal(path: Path) -> bool:
    """Whether a file is a journal of ours that has not been folded."""
    try:
        with path.open("rb") as file:
            start = file.read(_LOOK)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    return not start.startswith(_SQLITE) and _HEADER in start.split(b"\n", 1)[0]


def fold_in_place(path: Path) -> None:
    """Make a recording of a journal, under its own name. The journal is there until the recording is whole."""
    fold(path, path, Digest(), force=True)


def journal_header(path: Path) -> dict[str, Any] | None:
    """What a journal says of the process that writes it; None where the file is no journal."""
    try:
        with path.open("rb") as file:
            line = file.readline(_LOOK)
    except OSError:
        return None
    start = line.find(b"{")
    if start < 0 or not line[start:].startswith(_HEADER):
        return None
    try:
        header = orjson.loads(line[start:])["dynadiag_run"]
    except ValueError:
        return None
    return header if isinstance(header, dict) else None


def _running(path: Path) -> bool:
    """Whether the process that writes this journal is alive on this machine."""
    header = journal_header(path) or {}
    pid = header.get("pid")
    return header.get("host") == socket.gethostname() and isinstance(pid, int) and pid > 0 and _alive(pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _snapshot(path: Path) -> Recording:
    """A recording of what is there by now. The file has no name by the time it is returned."""
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        scratch = Path(folder, path.name)
        fold(path, scratch, Digest())
        return Recording(scratch)
