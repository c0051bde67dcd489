"""Which files a program changes in its folder. Trials of a program that writes files must not run at the same time."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

__all__ = ["FileSnapshot", "changed_files", "snapshot"]

_MAX_DEPTH = 2  # levels of subfolders
_MAX_ENTRIES = 5_000  # entries; the folder may be a home folder
_IGNORED_SUFFIXES = ("__pycache__", ".journal")  # what Python and our own search write there

FileSnapshot = dict[str, tuple[int, int]]  # path -> (modification time in ns, size in bytes)


def snapshot(folder: Path, without: Collection[Path] = ()) -> FileSnapshot:
    """The files in a folder at present, without those below the folders ``without``."""
    return dict(islice(_entries(folder, {str(path) for path in without}, _MAX_DEPTH), _MAX_ENTRIES))


def changed_files(before: FileSnapshot, after: FileSnapshot) -> list[str]:
    """The files that are new, removed or changed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _entries(folder: Path, without: Collection[str], deep: int) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_IGNORED_SUFFIXES) or entry.path in without:
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield entry.path, (status.st_mtime_ns, status.st_size)
                elif deep:
                    yield from _entries(Path(entry.path), without, deep - 1)
    except OSError:  # it is gone, or cannot be read
        return
