"""Whose code a place is in: the program's, or torch's or Python's own, which the program's author cannot mend."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynadiag.recording.records import Break, Frame, Guard

__all__ = ["is_pythons", "is_torchs", "modules", "way_in"]

_ARGUMENTS = ("L['self']", "L['args'][0]")  # where a method that was wrapped has its object
_KINDS = ("TYPE_MATCH", "ID_MATCH")  # guards that name the type of what they are on
_CLASS = re.compile(r"type=<class '[\w.]*\.(?P<name>\w+)'>")  # of a module of Python's own there is no dot

# Where pip, Debian and conda put the package. The folder's name alone says nothing: a program may have one of its own.
_TORCH = re.compile(r"[/\\](site|dist)-packages[/\\]torch[/\\]")

# Python's own library, wherever it is installed, but not what is installed into it.
_LIBRARY = re.compile(r"[/\\]lib(?:64)?[/\\]python3\.\d+t?[/\\](?!(?:site|dist)-packages[/\\])|^<frozen ")


def is_torchs(file: str | None) -> bool:
    """Whether a file belongs to torch."""
    return file is not None and _TORCH.search(file) is not None


def is_pythons(file: str | None) -> bool:
    """Whether a file belongs to Python's own library."""
    return file is not None and not is_torchs(file) and _LIBRARY.search(file) is not None


def way_in(item: Break) -> Frame | None:
    """The innermost line on the way to a break that is neither torch's nor Python's own: the user can change it."""
    return next((frame for frame in reversed(item.user_stack) if not _is_plumbing(frame.file)), None)


def _is_plumbing(file: str) -> bool:
    return is_torchs(file) or is_pythons(file)


def modules(guards: Iterable[Guard]) -> dict[str, str]:
    """The class of the object that each compile's function is a method of, by the guards on its type.

    A method under a decorator is compiled under the name of the decorator's inner function (``with_defaults.<locals>.
    wrapper``), which says nothing of whose it is.
    """
    found: dict[str, str] = {}
    for guard in guards:
        if guard.kind in _KINDS and guard.source in _ARGUMENTS and (match := _CLASS.search(guard.expression)):
            found.setdefault(guard.compile_id, match["name"])
    return found
