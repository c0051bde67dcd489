"""What text reports are printed with: their width, their colours, and the forms that all of them share.

The forms are those of rustc's diagnostics: a place, its lines of source with the exact span underlined, facts, help.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from dynadiag.recording.records import Span
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.paths import fit_path
from dynadiag.render.wrap import truncate_end, width, wrap_indented

_MIN_WIDTH = 60  # columns: a report for a narrower terminal is laid out for 60
_LISTING = "    "  # how torch sets a listing of code off from its sentences
_MAX_LINE = 2000  # characters of a line of a listing: more than any terminal shows
_MAX_LINES = 12  # lines after the first of one fact; torch's own text may be long
_GUTTER = 4  # columns for line numbers, so that the bars of all diagnostics stand in one line up to line 9,999
_TAB = "    "
_MAX_MARKED = 6  # lines of a span; of a longer one the first and the last lines are shown
_ELLIPSIS = "…"
_LINE_END = re.compile(r"\r\n|\r|\n")
T = TypeVar("T")

# SGR parameters (ECMA-48). The sixteen colours of the terminal's own theme, so that light and dark both read.
_PALETTE = {
    "strong": "1",
    "dim": "2",
    "error": "1;31",
    "break": "1;33",
    "recompile": "1;35",
    "gutter": "34",
    "mark": "1;31",
    "help": "1;36",
    "good": "32",
}


@dataclass(frozen=True, slots=True)
class Printer:
    """Width in columns, whether to colour, and whether to show all of a long list.

    Texts are cleaned as they are printed: the only escape codes in a report are those of `paint`.
    """

    width: int = 80
    color: bool = False
    all_: bool = False

    @property
    def columns(self) -> int:
        """The columns of a report: the width, or the least that a report is laid out for."""
        return max(self.width, _MIN_WIDTH)

    def paint(self, text: str, role: str) -> str:
        """The text in the colour of a role; as it is without colour, or for a role that has none."""
        code = _PALETTE.get(role)
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and code and text else text

    def wrap(self, text: str, indent: str = "") -> list[str]:
        """The text in lines that fit, each after the indent."""
        return wrap_indented(indent, text, self.columns)

    def first(self, items: Sequence[T], limit: int) -> Sequence[T]:
        """As many of the items as a report shows: all of them with `all_`."""
        return items if self.all_ else items[:limit]

    def labelled(self, label: str, text: str, role: str = "strong") -> list[str]:
        """``label: text``, wrapped under itself, the label in the colour of the role."""
        first, *rest = self.wrap(text, f"{label}: ")
        return [self.paint(f"{label}:", role) + first[len(label) + 1 :], *rest]

    def help(self, text: str) -> list[str]:
        """``help: text``, wrapped."""
        return self.labelled("help", text, "help")

    def location(self, place: str) -> str:
        """The line that names a place, after the head of a diagnostic."""
        return f"{' ' * _GUTTER}{self.paint('-->', 'gutter')} {fit_path(place, self.columns - _GUTTER - 4)}"

    def fact(self, name: str, text: str) -> list[str]:
        """``= name: text`` below the bar of the source, each line of the text wrapped by itself.

        Indented lines are a listing of code: each stays one line, cut at its end. Of a long text the first lines are
        shown, and an ellipsis for the rest.
        """
        prefix = f"{' ' * _GUTTER} = {name}: "
        indent = " " * len(prefix)
        head, *tail = [line for line in text.splitlines() if line.strip()] or [""]
        first, *rest = self.wrap(head, prefix)
        for line in tail[:_MAX_LINES]:
            if line.startswith(_LISTING):
                rest.append(indent + truncate_end(f"  {clean_line(line[:_MAX_LINE])}", self.columns - len(indent)))
            else:
                rest += self.wrap(line, indent)
        if len(tail) > _MAX_LINES:
            rest.append(f"{indent}...")
        return [self.paint(first[: _GUTTER + 2], "gutter") + first[_GUTTER + 2 :], *rest]

    def below_fact(self, name: str) -> tuple[str, int]:
        """The indent of further lines below a fact, and the columns that are left for them."""
        indent = " " * (_GUTTER + len(f" = {name}: "))
        return indent, self.columns - len(indent)

    def snippet(self, source: str | None, span: Span) -> list[str]:
        """The lines of a span, numbered and underlined; none where the source was not kept or has no such line."""
        marked = _marked_lines(source_lines(source), span) if source is not None else []
        if not marked:
            return []
        gutter = max(_GUTTER, len(str(marked[-1].number)))
        bar = self.paint(f"{' ' * gutter} |", "gutter")
        lines = [bar]
        previous = marked[0].number - 1
        for line in marked:
            if line.number != previous + 1:
                lines.append(self.paint("...", "gutter"))
            text, start, end = _window(line, self.columns - gutter - 3)
            lines.append(f"{self.paint(f'{line.number:>{gutter}} |', 'gutter')} {text}".rstrip())
            if end > start:
                lines.append(f"{bar} {' ' * start}{self.paint('^' * (end - start), 'mark')}")
            previous = line.number
        return [*lines, bar]


@dataclass(frozen=True, slots=True)
class _MarkedLine:
    """One line of source and the characters of it to underline, 0-based, the end exclusive."""

    number: int
    text: str
    start: int
    end: int


def source_lines(source: str) -> list[str]:
    """The lines as Python numbers them: a form feed or another of Unicode's separators ends none."""
    return _LINE_END.split(source.removesuffix("\n")) if source else []


def _marked_lines(lines: Sequence[str], span: Span) -> list[_MarkedLine]:
    first = span.line or 0
    last = max(span.end_line or first, first)
    if not 1 <= first <= len(lines):
        return []
    numbers = list(range(first, min(last, len(lines)) + 1))
    if len(numbers) > _MAX_MARKED:
        half = _MAX_MARKED // 2
        numbers = [*numbers[:half], *numbers[-half:]]
    return [_marked_line(number, lines[number - 1], span, last) for number in numbers]


def _marked_line(number: int, text: str, span: Span, last: int) -> _MarkedLine:
    """The part of a line in the span: the columns of the span at its ends, all but the indentation in between."""
    if span.column is None:
        return _MarkedLine(number, text, 0, 0)
    start = span.column if number == span.line else len(text) - len(text.lstrip())
    end = span.end_column if number == last and span.end_column is not None else len(text.rstrip())
    return _MarkedLine(number, text, min(start, len(text)), min(end, len(text)))


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
