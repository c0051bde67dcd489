"""Whose a line is: the program's, a library's, torch's or Python's own. A user can change the first only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from dynadiag.recording.code_origin import is_generated_file, is_stdlib_file, is_torch_file
from dynadiag.recording.package_files import PackageFiles
from dynadiag.recording.records import Frame


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a file. ``name`` is how a report calls it ("torch", "transformers"), empty for the program."""

    name: str = ""

    @property
    def is_user(self) -> bool:
        """Whether the line is the user's to change."""
        return not self.name


def owner_of(file: str | None, packages: PackageFiles) -> Owner:
    """Return the owner of a file. What no package was installed with is the user's: it may be a checkout."""
    if file is None or (is_generated_file(file) and not is_torch_file(file)):
        return Owner()
    if is_torch_file(file):
        return Owner("torch")
    if is_stdlib_file(file):
        return Owner("Python")
    if inside := packages.inside(file):
        return Owner(PurePath(inside).parts[0].removesuffix(".py"))
    return Owner()


def entry_frame(stack: Iterable[Frame], packages: PackageFiles) -> Frame | None:
    """Return the innermost frame of the program's own on the way to a library's line."""
    own = [frame for frame in stack if owner_of(frame.file, packages).is_user]
    return own[-1] if own else None


def owner_and_entry(file: str | None, stack: Iterable[Frame], packages: PackageFiles) -> tuple[Owner, Frame | None]:
    """Return the owner of a line's file, and for a library's line the program's own frame that leads there."""
    owner = owner_of(file, packages)
    return owner, None if owner.is_user else entry_frame(stack, packages)
