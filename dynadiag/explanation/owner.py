"""Whose a line is: the program's, a library's, torch's or Python's own. A user can change the first only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.code_origin import is_generated_file, is_stdlib_file, is_torch_file, path_in_packages
from dynadiag.recording.records import Frame

__all__ = ["Owner", "entry_frame", "owner_of"]


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a file. ``name`` is how a report calls it ("torch", "transformers"), empty for the program."""

    name: str = ""

    @property
    def is_user(self) -> bool:
        """Whether the line is the user's to change."""
        return not self.name


def owner_of(file: str | None, run: RunRecords) -> Owner:
    """Return the owner of a file. What lies in no package is the program's, unless it is outside of its folders."""
    if file is None or (is_generated_file(file) and not is_torch_file(file)):
        return Owner()
    if is_torch_file(file):
        return Owner("torch")
    if is_stdlib_file(file):
        return Owner("Python")
    if inside := path_in_packages(file):
        return Owner(PurePath(inside).parts[0].removesuffix(".py"))
    folders = _folders(run)
    if not folders or any(PurePath(file).is_relative_to(folder) for folder in folders):
        return Owner()
    return Owner(PurePath(file).parent.name)


def entry_frame(stack: Iterable[Frame], run: RunRecords) -> Frame | None:
    """Return the innermost frame of the program's own on the way to a library's line."""
    own = [frame for frame in stack if owner_of(frame.file, run).is_user]
    return own[-1] if own else None


def _folders(run: RunRecords) -> tuple[str, ...]:
    """The folders of the program: the current one, and that of its main file; none where neither is known."""
    mains = {each.user_stack[0].file for each in run.compiles if each.user_stack} | {
        each.user_stack[0].file for each in run.breaks if each.user_stack
    }
    mains = {file for file in mains if not is_generated_file(file) and path_in_packages(file) is None}
    own = {str(PurePath(file).parent) for file in mains}
    return tuple(own | ({run.run.cwd} if run.run.cwd and own else set()))
