"""Which files are of installed packages: what lies in ``site-packages`` or ``dist-packages``, as its path says, and
what pip put into any other folder (``pip install --target``), as the package's metadata says.

The metadata is a folder `NAME-VERSION.dist-info` beside the package, and `RECORD` in it has a line for each file
(https://packaging.python.org/specifications/recording-installed-packages/). A recording is read on other machines, so
the recorder writes down what the metadata said of the modules of its program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution
from pathlib import Path
from typing import NamedTuple

from dynadiag.recording.code_origin import path_in_packages


@dataclass(frozen=True, slots=True)
class PackageFiles:
    """The files of packages of one run. ``listed`` has the paths from their packages on of those whose path does not
    say that they are of one.
    """

    listed: Mapping[str, str] = field(default_factory=dict)

    def inside(self, file: str | None) -> str | None:
        """The path of a file from its package on (``torch/nn/modules/linear.py``). ``None`` for other files."""
        return None if file is None else path_in_packages(file) or self.listed.get(file)


class InstalledFile(NamedTuple):
    """A file that metadata lists: its path (``torch/nn/modules/linear.py``), the package's name and version."""

    inside: str
    package: str
    version: str


def installed_path(file: str) -> str | None:
    """What `PackageFiles.inside` returns, for a file of this machine."""
    if (inside := path_in_packages(file)) is not None:
        return inside
    found = installed_file(Path(file))
    return found and found.inside


def installed_file(file: Path) -> InstalledFile | None:
    """The package that a file of this machine was installed with. ``None`` if no metadata lists it, as of what is no
    file (a cell of a notebook, a frozen module).
    """
    for folder in file.parents if file.is_absolute() else ():
        for metadata, listed in _records(folder):
            inside = file.relative_to(folder).as_posix()
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
