"""Folders: the recordings of a run with several processes, and where things are kept between sessions."""

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
    """The recordings of a folder, and the first that can be read, open.

    ``paths`` is empty where there is one only: that is no run with ranks.
    """

    session: Session
    paths: Sequence[Path]
    rank: int


def open_folder(folder: Path) -> Folder:
    """Open what a run with several processes left. Raises `UnreadableInput` where nothing of it can be read."""
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
