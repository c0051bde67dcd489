"""Text with roles. A role says what a piece of text is, and the theme decides how it looks.

A line is a tuple of fragments, each a text and a role. There is no markup, and text from a recording has its control
characters removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.render.clean import clean, clean_line
from tui.location import Location

Fragment = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """One line on the screen, and the location that enter goes to."""

    fragments: tuple[Fragment, ...] = ()
    target: Location | None = None
    continues: bool = False  # continues the previous line

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.fragments)


def line(*parts: str | Fragment, to: Location | None = None) -> Line:
    """Return a line of texts and ``(text, role)`` pairs. Control characters are removed."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Line(tuple((_single_line(text), role) for text, role in pairs if text), to)


def printable_code(text: str) -> str:
    """Return a line of code as it is shown: tabs expanded to four columns, control characters escaped."""
    return clean(text.rstrip("\r").expandtabs(4))


def clipboard_text(text: str) -> str:
    """Return a text for the clipboard. It has no escape sequences, because it may be pasted into a shell."""
    return clean("\n".join([part.removesuffix("\r") for part in text.split("\n")]))


def _single_line(text: str) -> str:
    """Return a text without control characters, on one line. Blanks stay because they align columns."""
    return clean(text).replace("\n", " ").replace("\t", " ") if not text.isprintable() else text


one_line = clean_line  # a text of any length on one line, without control characters
