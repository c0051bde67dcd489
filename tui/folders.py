"""A folder of recordings: one for each process of a distributed run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.errors import UnreadableInput
from dynadiag.recording.opening import recordings_in
from tui.session import Session

__all__ = ["Folder", "open_folder"]


@dataclass(frozen=True, slots=True)
class Folder:
    """The recordings of a folder, and the session of the first readable one.

    ``paths`` is empty if the folder holds only one recording, because a single recording has no ranks.
    """

    session: Session
    paths: Sequence[Path]
    rank: int


def open_folder(folder: Path) -> Folder:
    """Open the recordings of a run with several processes. Raises `UnreadableInput` if none can be read."""
    paths = recordings_in(folder)
    problems = []
    for rank, path in enumerate(paths):
        try:
            session = Session.open(path)
        except UnreadableInput as error:
            problems.append(error)
        else:
            return Folder(session, paths if len(paths) > 1 else (), rank)
    raise problems[0]
