"""Whose code a place is in: the program's, or torch's or Python's own, which the program's author cannot mend."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynadiag.recording.records import Break, Frame, Guard

__all__ = ["is_stdlib_file", "is_torch_file", "method_classes", "user_frame"]

_ARGUMENTS = ("L['self']", "L['args'][0]")  # where a method that was wrapped has its object
_KINDS = ("TYPE_MATCH", "ID_MATCH")  # guards that name the type of what they are on
_CLASS = re.compile(r"type=<class '[\w.]*\.(?P<name>\w+)'>")  # of a module of Python's own there is no dot

# Where pip, Debian and conda put the package. The folder's name alone says nothing: a program may have one of its own.
_TORCH = re.compile(r"[/\\](site|dist)-packages[/\\]torch[/\\]")

# Python's own library, wherever it is installed, but not what is installed into it.
_LIBRARY = re.compile(r"[/\\]lib(?:64)?[/\\]python3\.\d+t?[/\\](?!(?:site|dist)-packages[/\\])|^<frozen ")


def is_torch_file(file: str | None) -> bool:
    """Whether a file belongs to torch."""
    return file is not None and _TORCH.search(file) is not None


def is_stdlib_file(file: str | None) -> bool:
    """Whether a file belongs to Python's own library."""
    return file is not None and not is_torch_file(file) and _LIBRARY.search(file) is not None


def user_frame(item: Break) -> Frame | None:
    """The innermost line on the way to a break that is neither torch's nor Python's own: the user can change it."""
    return next((frame for frame in reversed(item.user_stack) if not _is_library_file(frame.file)), None)


def _is_library_file(file: str) -> bool:
    return is_torch_file(file) or is_stdlib_file(file)


def method_classes(guards: Iterable[Guard]) -> dict[str, str]:
    """The class of the object that each compile's function is a method of, by the guards on its type.

    A method under a decorator is compiled under the name of the decorator's inner function (``with_defaults.<locals>.
    wrapper``), which says nothing of whose it is.
    """
    found: dict[str, str] = {}
    for guard in guards:
        if guard.kind in _KINDS and guard.source in _ARGUMENTS and (match := _CLASS.search(guard.expression)):
            found.setdefault(guard.compile_id, match["name"])
    return found
