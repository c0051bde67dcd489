"""Text with roles: what a piece of text is, so that each theme can say how that looks.

A line is a tuple of fragments, each a text with the name of its role. Nothing here is markup: a text from a recording
is only ever a fragment's text, cleaned of control characters.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from dynadiag.render.clean import clean, clean_line
from tui.location import Location

__all__ = ["Fragment", "Line", "copied", "line", "one_line", "shown", "tail"]

Fragment = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """One line on the screen, and where enter on it goes."""

    fragments: tuple[Fragment, ...] = ()
    target: Location | None = None
    goes_on: bool = False  # it is the rest of the line above

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


def copied(text: str) -> str:
    """A text for the clipboard: what is pasted into a shell may bring no escape sequence out of a recording either."""
    return clean("\n".join([part.removesuffix("\r") for part in text.split("\n")]))


def _flat(text: str) -> str:
    """Cleaned and on one line, its blanks kept: columns are laid out with them."""
    return clean(text).replace("\n", " ").replace("\t", " ") if not text.isprintable() else text


def tail(text: str, width: int) -> str:
    """A cleaned text in so many columns; of a longer one its end, as of a path."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    kept = text[-width + 1 :]
    while cell_len(kept) > width - 1:
        kept = kept[1:]
    return set_cell_size(f"…{kept}", width)


def one_line(text: str) -> str:
    """A text of any length as one line."""
    return clean_line(text)
