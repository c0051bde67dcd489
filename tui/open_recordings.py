"""The recordings to browse: one, several that the user names, or those of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dynadiag.errors import UnreadableInput
from dynadiag.recording.opening import has_recordings, list_recordings
from tui.session import Session


class OpenRecordings(NamedTuple):
    """The session of the first readable recording, and its number among all, whose paths are empty if there is one."""

    session: Session
    paths: Sequence[Path]
    rank: int


def open_recordings(named: Sequence[Path]) -> OpenRecordings:
    """Open recordings, each named or in a named folder. Raises `UnreadableInput` if none can be read."""
    folders = [path.is_dir() or has_recordings(path) for path in named]
    paths = [
        one
        for path, is_folder in zip(named, folders, strict=True)
        for one in (list_recordings(path) if is_folder else [path])
    ]
    problems = []
    for rank, path in enumerate(paths):
        try:
            session = Session.open(path)
        except UnreadableInput as error:
            problems.append(error)
        else:
            return OpenRecordings(session, paths if len(paths) > 1 else (), rank)
    raise problems[0]
