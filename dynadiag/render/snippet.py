"""The user's source with the exact span underlined, in the manner of rustc."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dynadiag.recording.records import Span
from dynadiag.render.clean import clean
from dynadiag.render.components import GUTTER
from dynadiag.render.style import Style
from dynadiag.render.wrap import width

__all__ = ["snippet", "source_lines"]

_TAB = "    "
_MAX_LINES = 6  # of a span; of a longer one the first and the last lines are shown
_ELLIPSIS = "…"
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class _MarkedLine:
    """One line of source and the characters of it to underline, 0-based, the end exclusive."""

    number: int
    text: str
    start: int
    end: int


def snippet(source: str | None, span: Span, style: Style) -> list[str]:
    """The lines of a span, numbered and underlined; none where the source was not kept or has no such line."""
    marked = _marked_lines(source_lines(source), span) if source is not None else []
    if not marked:
        return []
    gutter = max(GUTTER, len(str(marked[-1].number)))
    bar = style.paint(f"{' ' * gutter} |", "gutter")
    lines = [bar]
    previous = marked[0].number - 1
    for line in marked:
        if line.number != previous + 1:
            lines.append(style.paint("...", "gutter"))
        lines.extend(_numbered_line(line, gutter, style))
        previous = line.number
    return [*lines, bar]


def source_lines(source: str) -> list[str]:
    """The lines as Python numbers them: a form feed or another of Unicode's separators ends none."""
    return _LINE_END.split(source.removesuffix("\n")) if source else []


def _marked_lines(lines: Sequence[str], span: Span) -> list[_MarkedLine]:
    first = span.line or 0
    last = max(span.end_line or first, first)
    if not 1 <= first <= len(lines):
        return []
    numbers = list(range(first, min(last, len(lines)) + 1))
    if len(numbers) > _MAX_LINES:
        half = _MAX_LINES // 2
        numbers = [*numbers[:half], *numbers[-half:]]
    return [_marked_line(number, lines[number - 1], span, last) for number in numbers]


def _marked_line(number: int, text: str, span: Span, last: int) -> _MarkedLine:
    """The part of a line in the span: the columns of the span at its ends, all but the indentation in between."""
    if span.column is None:
        return _MarkedLine(number, text, 0, 0)
    start = span.column if number == span.line else len(text) - len(text.lstrip())
    end = span.end_column if number == last and span.end_column is not None else len(text.rstrip())
    return _MarkedLine(number, text, min(start, len(text)), min(end, len(text)))


def _numbered_line(line: _MarkedLine, gutter: int, style: Style) -> list[str]:
    text, start, end = _window(line, style.columns - gutter - 3)
    head = style.paint(f"{line.number:>{gutter}} |", "gutter")
    drawn = [f"{head} {text}".rstrip()]
    if end > start:
        bar = style.paint(f"{' ' * gutter} |", "gutter")
        drawn.append(f"{bar} {' ' * start}{style.paint('^' * (end - start), 'mark')}")
    return drawn


def _window(line: _MarkedLine, columns: int) -> tuple[str, int, int]:
    """The part of a line around its span that fits, and the columns of the span in it."""
    cells = [_TAB if char == "\t" else clean(char) for char in line.text.rstrip()]
    first = _first_cell(cells, line, columns)
    room = columns - 2  # an ellipsis on either side
    last = first
    taken = 0
    while last < len(cells) and taken + width(cells[last]) <= room:
        taken += width(cells[last])
        last += 1
    lead, tail = (_ELLIPSIS if first else ""), (_ELLIPSIS if last < len(cells) else "")
    column = [len(lead) + width("".join(cells[first : max(first, min(at, last))])) for at in (line.start, line.end)]
    return lead + "".join(cells[first:last]) + tail, column[0], column[1]


def _first_cell(cells: Sequence[str], line: _MarkedLine, columns: int) -> int:
    """Where to begin: at the line's start, or so far left of the span as a third of the room allows."""
    if width("".join(cells)) <= columns - 2 or width("".join(cells[: line.end])) <= columns - 2:
        return 0
    first = line.start
    taken = 0
    while first > 0 and taken + width(cells[first - 1]) <= columns // 3:
        first -= 1
        taken += width(cells[first])
    return first
