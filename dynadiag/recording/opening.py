"""Open what a user names: a recording, a journal that is not folded yet, or a TORCH_TRACE log.

A ``.dynadiag`` file may still be a journal: of a program that is running, that crashed with its recorder, or that
recorded itself on a cluster. Opening it folds it in place once its end is known. A journal that somebody may still be
writing, here or on another machine, is read through a snapshot: folded in place, it would get no further events.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson

from dynadiag.errors import UnreadableInput, UnwritableOutput
from dynadiag.recording.journal import SUFFIX, process_space
from dynadiag.recording.packing import is_packed, member_names
from dynadiag.recording.reader import Recording
from dynadiag.recording.untrusted_sqlite import SQLITE_MAGIC

R = TypeVar("R", bound=Recording)

COMPARISON_NAME = "compare.json"  # the document of `dynadiag compare`, beside the recordings of its variants
READ_SUFFIXES = (SUFFIX, ".log")  # of files that are read and never run
_HEADERS = {kind: f'{{"{kind}": '.encode() for kind in ("dynadiag_launch", "dynadiag_run")}
_HEAD_BYTES = 1 << 16  # bytes of a file that are read to tell what it is


def open_recording(path: Path) -> Recording:
    """Open a recording, or fold a journal and open the result. Raises `UnreadableInput`."""
    return open_recording_as(path, Recording)


def open_recording_as(path: Path, kind: type[R]) -> R:
    """Open a recording as `open_recording` does, as a subclass of `Recording`.

    A journal that may still be written is folded into a temporary file and is not changed. The same holds for one that
    cannot be replaced (a read-only folder, a full disk), and for a file without the suffix of recordings: it may be an
    exported log that must stay one.
    """
    if not is_packed(path.parent) and is_journal(path):
        if path.suffix != SUFFIX or not has_ended(path):
            return _snapshot(path, kind)
        try:
            fold_in_place(path)
        except UnwritableOutput:
            return _snapshot(path, kind)
    return kind(path)


def has_recordings(path: Path) -> bool:
    """Whether a path is a packed job, or a folder with recordings."""
    return any(path.glob(f"*{SUFFIX}")) if path.is_dir() else is_packed(path)


def list_recordings(folder: Path) -> tuple[Path, ...]:
    """Return the recordings in a folder or in a packed job, by name. Raises `UnreadableInput` if there are none.

    The path of one in a packed job is that of the file, followed by its name.
    """
    if is_packed(folder):
        return tuple(folder / name for name in member_names(folder))
    found = tuple(sorted(folder.glob(f"*{SUFFIX}")))
    if not found:
        raise UnreadableInput(f"{folder}: no recording in this folder (they are named *{SUFFIX})")
    return found


def is_journal(path: Path) -> bool:
    """Whether a file is an unfolded journal of ours. Raises `UnreadableInput` if the path is not a file."""
    start = read_head(path, _HEAD_BYTES)
    return not start.startswith(SQLITE_MAGIC) and any(mark in start.split(b"\n", 1)[0] for mark in _HEADERS.values())


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file. Raises `UnreadableInput` if it is not a file, since a pipe would block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableInput(f"{path}: not a file")
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableInput(f"{str(path)[:200]}: {reason}") from error


def fold_in_place(path: Path) -> None:
    """Turn a journal into a recording of the same name. The journal exists until the recording is complete."""
    from dynadiag.recording.fold import fold  # it imports all readers of events, and most recordings need none

    fold(path, path, force=True)


def journal_header(path: Path) -> dict[str, Any] | None:
    """Return what a journal says about the process that writes it, or None if the file is not a journal."""
    return _headers(path).get("dynadiag_run")


def _headers(path: Path) -> dict[str, dict[str, Any]]:
    """What the first lines of a journal say: of the command that launched the program, and of the program."""
    found: dict[str, dict[str, Any]] = {}
    for line in read_head(path, _HEAD_BYTES).split(b"\n", 2)[:2]:
        for kind, mark in _HEADERS.items():
            if (start := line.find(mark)) >= 0:
                with suppress(ValueError, KeyError):
                    header = orjson.loads(line[start:])[kind]
                    found.update({kind: header} if isinstance(header, dict) else {})
    return found


def is_running(path: Path) -> bool:
    """Whether a process that writes this journal is known to be alive on this machine."""
    return any(_is_here(header) and _is_alive(header["pid"]) for header in _headers(path).values())


def has_ended(path: Path) -> bool:
    """Whether nothing will be appended to a journal any more, as far as can be known from here.

    Its end is in it, or each process that writes it was one of this machine and namespace, and is gone.
    """
    headers = _headers(path)
    if "dynadiag_launch" not in headers and _has_event(path, b'{"dynadiag_end": '):
        return not is_running(path)
    if _has_event(path, b'{"dynadiag_exit": '):
        return not is_running(path)
    return bool(headers) and all(
        _is_here(header) and header.get("space") is not None and not _is_alive(header["pid"])
        for header in headers.values()
    )


def is_being_written(path: Path) -> bool:
    """Whether a file is the journal of a program that runs on this machine."""
    try:
        return path.is_file() and is_journal(path) and is_running(path)
    except UnreadableInput:
        return False


def _has_event(path: Path, mark: bytes) -> bool:
    """Whether an event of this kind is among the last of a journal. Lines of payloads begin with a tab."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _HEAD_BYTES))
        return any(mark in line and not line.startswith(b"\t") for line in file.read().split(b"\n"))


def _is_here(header: Mapping[str, Any]) -> bool:
    """Whether the process id of a header means a process of this machine and namespace."""
    pid, space = header.get("pid"), header.get("space")
    return (
        isinstance(pid, int)
        and pid > 0
        and header.get("host") == socket.gethostname()
        and (space is None or space == process_space())
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _snapshot(path: Path, kind: type[R]) -> R:
    """Open a recording of the journal so far. Its temporary file is unlinked when this returns: it has the journal's
    path.
    """
    from dynadiag.recording.fold import fold  # as above

    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        scratch = Path(folder, path.name)
        fold(path, scratch)
        opened = kind(scratch)
    opened.path = path
    return opened
