"""The state folder: where results are kept that the user gave no name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import JOURNAL_SUFFIX, SUFFIX

STATE_BYTES = 1_000_000_000  # size of the folder from which on `prune` is advised
_SUFFIXES = (SUFFIX, f"{SUFFIX}{JOURNAL_SUFFIX}", ".html")
_PREFIXES = ("repro-", "triage-", "compare-")  # of repros, and of the folders of two commands


def state_folder() -> Path:
    """Return the folder for recordings without a name of their own. It is never the current folder.

    A relative ``XDG_STATE_HOME`` does not count: the XDG specification says so. Raises `DynadiagError` if there is no
    home folder.
    """
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".local" / "state") / "dynadiag"
    except RuntimeError as error:
        raise DynadiagError("there is no home folder: set HOME or XDG_STATE_HOME") from error


def stored_results(folder: Path) -> Iterator[tuple[Path, int, float]]:
    """Yield what commands left in the folder: the path, the bytes, and when it was last written.

    Files that no command of ours makes are left out. The folder may be missing.
    """
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if not entry.is_symlink() and (entry.name.endswith(_SUFFIXES) or entry.name.startswith(_PREFIXES)):
            status = entry.stat(follow_symlinks=False)
            yield Path(entry.path), _size(Path(entry.path)), status.st_mtime


def _size(path: Path) -> int:
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(each.lstat().st_size for each in files)


def tell_if_large(folder: Path) -> None:
    """Say on stderr that the folder is large, if it is."""
    size = sum(size for _, size, _ in stored_results(folder))
    if size > STATE_BYTES:
        sys.stderr.write(f"dynadiag: {size / 1e9:.1f} GB are in {folder}; `dynadiag prune` says what may go\n")
