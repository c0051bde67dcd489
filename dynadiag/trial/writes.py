"""What a program leaves in its folder: two trials at once of one that writes files could meet in them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

__all__ = ["Seen", "seen", "written"]

_DEEP = 2  # folders below the one looked at
_MOST = 5_000  # entries looked at: the folder may be somebody's home
_NOT_THEIRS = ("__pycache__", ".journal")  # endings of what Python and a search of ours write there

Seen = dict[str, tuple[int, int]]  # by path: when it was changed, in ns, and its bytes


def seen(folder: Path, without: Collection[Path] = ()) -> Seen:
    """The files of a folder as they are now, those in the folders ``without`` left out."""
    return dict(islice(_entries(folder, {str(path) for path in without}, _DEEP), _MOST))


def written(before: Seen, after: Seen) -> list[str]:
    """The files that are new, gone or changed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _entries(folder: Path, without: Collection[str], deep: int) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_NOT_THEIRS) or entry.path in without:
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield entry.path, (status.st_mtime_ns, status.st_size)
                elif deep:
                    yield from _entries(Path(entry.path), without, deep - 1)
    except OSError:  # it went away, or is not ours to read: nothing is known of it
        return
