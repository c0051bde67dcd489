"""A table in a report: names on the left, figures to the right of them under their titles."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.render.clean import clean_line
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_middle, width

__all__ = ["table"]

_GAP = 2  # columns between columns
_LABEL = 30  # columns of a name at most

Column = tuple[str, Sequence[str]]


def table(names: Sequence[str], columns: Sequence[Column], style: Style, label: int = _LABEL) -> list[str]:
    """A line with the titles, and one for each name; every column has a cell for each. Names come out cleaned."""
    shown = [truncate_middle(clean_line(name), label) for name in names]
    first = max(map(width, shown))
    laid = [[title, *cells] for title, cells in columns]
    widths = [max(map(width, column)) for column in laid]
    body = [
        "".join(" " * (_GAP + room - width(cell)) + cell for cell, room in zip(line, widths, strict=True))
        for line in zip(*laid, strict=True)
    ]
    pairs = zip(shown, body[1:], strict=True)
    return [
        style.paint(" " * first + body[0], "dim"),
        *((name + " " * (first - width(name)) + cells).rstrip() for name, cells in pairs),
    ]
