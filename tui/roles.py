"""Text with roles: what a piece of text is, so that each theme can say how that looks.

A line is a tuple of fragments, each a text with the name of its role. Nothing here is markup: a text from a recording
is only ever a fragment's text, cleaned of control characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.render.clean import clean, clean_line
from dynadiag.render.style import Style
from tui.location import Location

__all__ = ["Fragment", "Line", "RoleStyle", "line", "lines_of", "one_line", "shown"]

Fragment = tuple[str, str]

# Markers in the private use area: `clean` escapes those, so none can come out of a recording.
_OPEN, _CLOSE, _FIRST = "\ue000", "\ue001", 0xE100
_ROLES = ("strong", "dim", "error", "break", "recompile", "gutter", "mark", "help", "good")


@dataclass(frozen=True, slots=True)
class Line:
    """One line on the screen, and where enter on it goes."""

    fragments: tuple[Fragment, ...] = ()
    target: Location | None = None

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.fragments)


def line(*parts: str | Fragment, to: Location | None = None) -> Line:
    """A line of plain texts and ``(text, role)`` pairs; each is cleaned."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Line(tuple((_flat(text), role) for text, role in pairs if text), to)


def shown(text: str) -> str:
    """A line of code as it is shown: tabs to stops of four, control characters visible."""
    return clean(text.rstrip("\r").expandtabs(4))


@dataclass(frozen=True, slots=True)
class RoleStyle(Style):
    """A report's style that marks roles instead of colouring, for `lines_of`."""

    def paint(self, text: str, role: str) -> str:
        return f"{_OPEN}{chr(_FIRST + _ROLES.index(role))}{text}{_CLOSE}" if role in _ROLES and text else text


def lines_of(report: Iterable[str]) -> list[Line]:
    """The lines of a report that was laid out in a `RoleStyle`."""
    return [Line(tuple(_fragments(text))) for text in report]


def _fragments(text: str) -> Iterable[Fragment]:
    for piece in text.split(_OPEN):
        head, sep, tail = piece.partition(_CLOSE)
        if sep:
            yield head[1:], _ROLES[ord(head[0]) - _FIRST]
        rest = tail if sep else head
        if rest:
            yield rest, ""


def _flat(text: str) -> str:
    """Cleaned and on one line, its blanks kept: columns are laid out with them."""
    return clean(text).replace("\n", " ").replace("\t", " ") if not text.isprintable() else text


def one_line(text: str) -> str:
    """A text of any length as one line."""
    return clean_line(text)
