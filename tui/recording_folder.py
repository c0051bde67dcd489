"""A folder of recordings: one for each process of a distributed run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.errors import UnreadableInput
from dynadiag.recording.opening import list_recordings
from tui.session import Session

__all__ = ["RecordingFolder", "open_folder"]


@dataclass(frozen=True, slots=True)
class RecordingFolder:
    """The recordings of a folder, and the session of the first readable one.

    ``paths`` is empty if the folder holds only one recording, because a single recording has no ranks.
    """

    session: Session
    paths: Sequence[Path]
    rank: int


def open_folder(folder: Path) -> RecordingFolder:
    """Open the recordings of a run with several processes. Raises `UnreadableInput` if none can be read."""
    paths = list_recordings(folder)
    problems = []
    for rank, path in enumerate(paths):
        try:
            session = Session.open(path)
        except UnreadableInput as error:
            problems.append(error)
        else:
            return RecordingFolder(session, paths if len(paths) > 1 else (), rank)
    raise problems[0]
