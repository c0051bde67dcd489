"""The files that fix changes: the user's, and copies of them in which a candidate is tried; and those of installed
packages, of which a changed copy is loaded in place of the module (`overlay_runtime`).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dynadiag.errors import DynadiagError
from dynadiag.recording.code_origin import module_at, path_in_packages
from dynadiag.recording.package_files import installed_path
from dynadiag.trial.program import Program

_PACKAGES = "site-packages"  # in the name of a library's file: no name of the user's begins so
_NOT_CHANGED = ("torch", "torchgen", "functorch", "triton", "numpy", "dynadiag")  # the compiler, and what it stands on
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_MAX_COPIED_BYTES = 64 << 20  # of one copy; larger data is linked, and a program only reads it
_MAX_COPIED_FILE = 4 << 20
_MAX_ENTRIES = 20_000  # the folder may be a home folder


@dataclass(frozen=True, slots=True)
class Project:
    """The folder that the program's own modules are imported from, and where the program is started.

    ``sources`` has the texts of the files that were asked for, by their path relative to ``root``. ``added`` are files
    that every copy has besides the user's. ``installed`` has the files of packages by their names, which begin with
    "site-packages/"; that of one that pip put below ``root`` is relative to it. ``imported`` are packages that the
    user's files have without an import of their own.
    """

    program: Program
    root: Path
    cwd: Path
    sources: dict[str, str] = field(default_factory=dict)
    added: Mapping[str, bytes] = field(default_factory=dict)
    installed: dict[str, Path] = field(default_factory=dict)
    imported: Set[str] = frozenset()

    @classmethod
    def of(cls, program: Program) -> Project:
        """The project of a program: the folder of its file, else the current folder."""
        by_file = program.target.endswith(".py") and not program.module
        return cls(program, Path(program.target).parent if by_file else Path.cwd(), Path.cwd())

    def relative(self, file: str | None) -> str | None:
        """The path of one of the project's Python files relative to its root; ``None`` for any other file."""
        if file is None or not file.endswith(".py"):
            return None
        try:
            path = Path(file).relative_to(self.root)
        except ValueError:
            return None
        hidden = any(part in _SKIPPED or part.startswith(".") for part in path.parts)
        if hidden or not (self.root / path).is_file():
            return None
        inside = installed_path(file)
        below = inside is not None and len(Path(inside).parts) <= len(path.parts)  # else the root is the package's
        return None if below else path.as_posix()

    def name(self, file: str | None) -> str | None:
        """The name of a file that fix may change: the project's own as `relative`, or an installed package's."""
        if (own := self.relative(file)) is not None or file is None or not file.endswith(".py"):
            return own
        path, inside = Path(file), installed_path(file)
        if inside is None or inside.partition("/")[0] in _NOT_CHANGED:
            return None
        name = f"{_PACKAGES}/{inside}"
        if name not in self.installed and path.is_file():
            # First met where it is installed, or in a copy of the project: a changed copy has the same name.
            copied = path_in_packages(file) is None and path.is_relative_to(self.root)
            self.installed[name] = path.relative_to(self.root) if copied else path
        return name if name in self.installed else None

    def path(self, name: str) -> Path:
        """The file of a name."""
        return self.root / self.installed.get(name, name)

    def source(self, name: str) -> str:
        """The text of a file. Raises `DynadiagError` if it cannot be read."""
        if name not in self.sources:
            path = self.path(name)
            try:
                self.sources[name] = path.read_bytes().decode("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise DynadiagError(f"{path}: cannot read it as UTF-8 ({error})") from error
        return self.sources[name]

    def copy_to(self, folder: Path) -> Project:
        """A copy of the project in ``folder``."""
        root = folder / (self.root.name or "root")
        _copy_tree(self.root, root, _Budget())
        for name, content in self.added.items():
            write_new(root / name, content)
        return replace(self, program=self._moved(root), root=root, cwd=self._moved_folder(root), sources={})

    def restore(self, copy: Project, before: Entries) -> None:
        """Make a copy of this project as it was, when `entries_of` its root were ``before``."""
        now = entries_of(copy.root)
        for name in sorted(now.keys() - before.keys()):
            _remove(copy.root / name)
        for name in sorted(name for name, entry in before.items() if now.get(name) != entry):
            place = copy.root / name
            _remove(place)
            if stat.S_ISDIR(before[name].kind):
                place.mkdir()
            elif name in self.added:
                place.write_bytes(self.added[name])
            elif stat.S_ISLNK(before[name].kind):
                place.symlink_to(self.root / name)
            elif (self.root / name).is_file():
                shutil.copyfile(self.root / name, place)

    def _moved(self, root: Path) -> Program:
        if not self.program.target.endswith(".py") or self.program.module:
            return self.program
        return replace(self.program, target=str(root / Path(self.program.target).name))

    def _moved_folder(self, root: Path) -> Path:
        try:
            moved = root / self.cwd.relative_to(self.root)
        except ValueError:
            return self.cwd
        return moved if moved.is_dir() else root


class Entry(NamedTuple):
    """The state of an entry of a folder: its file type and, except for folders, its mtime (ns) and size."""

    kind: int
    modified: int
    size: int


Entries = dict[str, Entry]


def entries_of(root: Path) -> Entries:
    """All that is in a folder, by its path relative to the folder."""
    entries: Entries = {}
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                found = os.lstat(f"{folder}/{name}")
                kind, is_folder = stat.S_IFMT(found.st_mode), stat.S_ISDIR(found.st_mode)
                plain = Entry(kind, 0, 0) if is_folder else Entry(kind, found.st_mtime_ns, found.st_size)
                entries[name if inside == "." else f"{inside}/{name}"] = plain
    return entries


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def write_new(place: Path, content: bytes) -> None:
    """Write a file of a copy, in the place of one that may be a link."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.write_bytes(content)


def is_library(name: str) -> bool:
    """Whether a name of a project's file is that of an installed package's."""
    return name.startswith(f"{_PACKAGES}/")


def module_of(name: str) -> str:
    """The module of a library's file.

    >>> module_of("site-packages/transformers/models/bert/__init__.py")
    'transformers.models.bert'
    """
    return module_at(name.removeprefix(f"{_PACKAGES}/"))


@dataclass(slots=True)
class _Budget:
    entries: int = _MAX_ENTRIES
    bytes: int = _MAX_COPIED_BYTES

    def takes(self, size: int) -> bool:
        self.entries -= 1
        if size > _MAX_COPIED_FILE or size > self.bytes or self.entries < 0:
            return False
        self.bytes -= size
        return True


def _copy_tree(source: Path, target: Path, budget: _Budget) -> None:
    """Copy a folder. What is too large, or no ordinary file, is linked."""
    target.mkdir(parents=True)
    for entry in _entries(source):
        place = target / entry.name
        if entry.is_dir(follow_symlinks=False) and not _is_environment(entry) and budget.entries > 0:
            _copy_tree(Path(entry.path), place, budget)
        elif entry.is_file(follow_symlinks=True) and budget.takes(entry.stat().st_size):
            shutil.copyfile(entry.path, place)
        else:
            place.symlink_to(entry.path)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: (entry.is_dir(), entry.name))
    except OSError:  # it cannot be read, so the program does not read it either
        return
    yield from (entry for entry in found if entry.name not in _SKIPPED and not entry.name.startswith("."))


def _is_environment(entry: os.DirEntry[str]) -> bool:
    return Path(entry.path, "pyvenv.cfg").exists()
