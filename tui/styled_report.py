"""Sections of the text report on the screen, with roles instead of escape codes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.render.printer import Printer
from tui.styled_text import Fragment, Line

# Markers in Unicode's private use area. `clean` escapes those, so no text of a recording contains them.
_OPEN, _CLOSE, _FIRST = "\ue000", "\ue001", 0xE100
_MIN_COLUMNS = 40  # minimum columns of a report
_ROLES = ("strong", "dim", "error", "break", "recompile", "gutter", "mark", "help", "good")


@dataclass(frozen=True, slots=True)
class RolePrinter(Printer):
    """A printer that marks roles instead of writing colors. Its width is that of the pane."""

    @property
    def columns(self) -> int:
        return max(self.width, _MIN_COLUMNS)

    def paint(self, text: str, role: str) -> str:
        return f"{_OPEN}{chr(_FIRST + _ROLES.index(role))}{text}{_CLOSE}" if role in _ROLES and text else text


def styled_report_lines(report: Iterable[str]) -> list[Line]:
    """Return the lines of a report that was written in a `RolePrinter`."""
    return [Line(tuple(_fragments(text))) for text in report]


def _fragments(text: str) -> Iterable[Fragment]:
    for piece in text.split(_OPEN):
        head, sep, tail = piece.partition(_CLOSE)
        if sep:
            yield head[1:], _ROLES[ord(head[0]) - _FIRST]
        rest = tail if sep else head
        if rest:
            yield rest, ""
