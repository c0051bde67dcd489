"""Bookmarks and notes of a recording. They are a file of their own in the state folder: the recording is only read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dynadiag.errors import UnreadableInput
from dynadiag.recording.records import Run
from dynadiag.recording.store import atomic_write
from tui.location import Location

_ID_CHARS = 12  # of the hash that names the file


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A location, the text of its line, and what the user wrote about it."""

    place: Location
    text: str
    note: str = ""


def bookmark_path(folder: Path, run: Run) -> Path:
    """Return the file for a run. It is named by the run and not by the path, so that a recording may be moved."""
    whole = "\n".join(map(str, (run.target, run.argv, run.pid, run.started, run.rank)))
    return folder / "bookmarks" / f"{hashlib.sha256(whole.encode()).hexdigest()[:_ID_CHARS]}.json"


def read_bookmarks(path: Path) -> list[Bookmark]:
    """Read bookmarks; none where the file does not exist. Raises `UnreadableInput` if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Bookmark])
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UnreadableInput(f"{path}: these are no bookmarks ({error}): mend the file or delete it") from error


def write_bookmarks(path: Path, marks: list[Bookmark]) -> None:
    """Write bookmarks. Raises `OSError` or `DynadiagError` if it cannot: then the file is as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path.resolve(), True) as scratch:
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(marks), indent=2))
