"""Which package pip installed a file of, wherever it put it: its metadata lists its files.

The metadata is a folder `NAME-VERSION.dist-info` beside the package, and `RECORD` in it has a line for each file
(https://packaging.python.org/specifications/recording-installed-packages/).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution
from pathlib import Path
from typing import NamedTuple

__all__ = ["InstalledFile", "installed_file"]


class InstalledFile(NamedTuple):
    """A file of an installed package: its path (``torch/nn/modules/linear.py``), the package's name and version."""

    inside: str
    package: str
    version: str


def installed_file(file: Path, top: Path | None = None) -> InstalledFile | None:
    """Return the package that a file was installed with, None if no metadata lists it.

    With ``top`` only metadata in this folder or below it is read.
    """
    for folder in file.parents:
        if top is not None and not folder.is_relative_to(top):
            return None
        inside = file.relative_to(folder).as_posix()
        for metadata, listed in _records(folder):
            if f"\n{inside}," in listed:
                found = Distribution.at(metadata)
                return InstalledFile(inside, found.metadata["Name"], found.version)
    return None


@cache
def _records(folder: Path) -> tuple[tuple[Path, str], ...]:
    """The folders of metadata in a folder, and the files that each lists, a line each."""
    return tuple(_read(folder))


def _read(folder: Path) -> Iterator[tuple[Path, str]]:
    try:
        for record in sorted(folder.glob("*.dist-info/RECORD")):
            yield record.parent, "\n" + record.read_text("utf-8", "replace")
    except OSError:  # it cannot be read, so it says nothing
        return
