"""Text with roles, wrapped to the width of the screen: reports, details, the overview."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain

from rich.cells import cell_len, chop_cells
from rich.segment import Segment

from tui.colors import role_style
from tui.location import Location
from tui.styled_text import Fragment, Line
from tui.widgets.lines import Lines

_MIN_COLUMNS = 20  # minimum columns
_INDENT = 4  # columns by which continuation lines are indented
_WORD = re.compile(r"\s*\S+|\s+$")
_PART = re.compile(r"[^/.]*[/.]|[^/.]+")  # of a path or a dotted name


def wrap_lines(lines: Sequence[Line], columns: int) -> list[Line]:
    """Return the lines wrapped to `columns`. Every part of a line has the target of the line."""
    return [part for item in lines for part in _line(item, max(columns, _MIN_COLUMNS))]


def _line(item: Line, columns: int) -> Iterator[Line]:
    if cell_len(item.text) <= columns:
        yield item
        return
    text = item.text
    blank = (len(text) - len(text.lstrip()) + _INDENT) % columns
    indent = " " * min(blank, columns // 2)
    row: list[Fragment] = []
    used, goes_on = 0, item.continues
    for word, role in _split_words(item.fragments, columns - len(indent)):
        size = cell_len(word)
        if used + size > columns and not word.strip():
            continue
        if used + size > columns:
            yield Line(tuple(row), item.target, goes_on)
            goes_on = True
            word = word.lstrip()  # drop the blank at the line break
            row, used, size = [(indent, "")], len(indent), cell_len(word)
        row.append((word, role))
        used += size
    yield Line(tuple(row), item.target, goes_on)


def _split_words(fragments: Iterable[Fragment], columns: int) -> Iterator[Fragment]:
    """Yield words with the blanks before them. A word that is longer than a line is split."""
    for text, role in fragments:
        for word in _WORD.findall(text):
            parts = _broken(word, columns) if cell_len(word) > columns else [word]
            yield from ((part, role) for part in parts)


def _broken(word: str, columns: int) -> list[str]:
    """Split a word into parts of at most `columns`: between folders or names, where there are any."""
    made = [""]
    for part in chain.from_iterable(chop_cells(part, columns) for part in _PART.findall(word)):
        if cell_len(made[-1] + part) > columns:
            made.append("")
        made[-1] += part
    return made


MARK_WIDTH = 2  # columns of the mark


class StyledLines(Lines):
    """A text. A mark precedes each line that has a target."""

    def __init__(
        self,
        lines: Sequence[Line] = (),
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
        classes: str | None = None,
        wrap: bool = False,
        marks: bool = True,
    ) -> None:
        """If `wrap`, long lines are wrapped instead of scrolled sideways; without `marks`, targets are not marked."""
        super().__init__(id=id, classes=classes)
        self._marked = marks
        self._unwrapped = lines
        self.lines = lines  # as they are wrapped
        self._wraps_text = self._wrap = wrap
        self._wrapped_columns = 0  # columns that the lines are wrapped to
        self._marks = self._marked and any(item.target for item in lines)

    def on_mount(self) -> None:
        self.show(self._unwrapped)

    def on_resize(self) -> None:
        if self._wrap and self.size.width and self.columns != self._wrapped_columns:
            self._show(self._unwrapped, keep=True)

    def _first_of(self, number: int) -> int:
        """Return where the first part of an unwrapped line is shown."""
        return len(self._to_width(self._unwrapped[:number]))

    def _to_width(self, lines: Sequence[Line]) -> list[Line]:
        if not self._wrapped_columns:  # before it has a size, which it is drawn once without
            return list(lines)
        return wrap_lines(lines, self._wrapped_columns - (MARK_WIDTH if self._marks else 0))

    def _kept_number(self, lines: Sequence[Line]) -> int:
        """Return the number that the cursor's unwrapped line has among other lines; if it is gone, its old number."""
        starts = accumulate(len(self._to_width([item])) for item in self._unwrapped)
        number = next((number for number, end in enumerate(starts) if end > self.cursor), len(self._unwrapped))
        here = self._unwrapped[number] if number < len(self._unwrapped) else None
        return next((place for place, item in enumerate(lines) if here and here.text and item == here), number)

    def show_note(self, note: Line) -> None:
        """Show a sentence in place of the text. It is wrapped even where code would not be."""
        self._wrap = True
        self._show([note], keep=False)

    def show(self, lines: Sequence[Line], *, keep: bool = False) -> None:
        """Show other lines, from the top, or if `keep` with the cursor on its line, or on that of the same number."""
        self._wrap = self._wraps_text
        self._show(lines, keep=keep)

    def _show(self, lines: Sequence[Line], *, keep: bool) -> None:
        number = self._kept_number(lines) if keep and self._wrap else None
        self._unwrapped = self.lines = lines
        self._marks = self._marked and any(item.target for item in lines)
        if self._wrap:
            if self.size.width:  # a hidden pane has none: it keeps the last one
                self._wrapped_columns = self.columns
            self.lines = self._to_width(lines)
        self.resize_content(max((cell_len(item.text) for item in lines), default=0))
        if number is not None:
            self.set_reactive(Lines.cursor, min(self._first_of(number), max(0, self.count - 1)))
            self.reveal(self.cursor)
        if not keep:
            self.scroll_to(0, 0, animate=False, immediate=True, force=True)
            self.set_reactive(Lines.cursor, 0)
        self.refresh()

    @property
    def columns(self) -> int:
        """Columns for text. Those of a scrollbar that may appear are not counted."""
        bar = 0 if self.show_vertical_scrollbar else self.styles.scrollbar_size_vertical
        return max(1, self.scrollable_content_region.width - bar)

    @property
    def target(self) -> Location | None:
        """Where the cursor's line leads. Ask this and not for a line of a message: other lines may be shown by now."""
        return self.lines[self.cursor].target if self.cursor < self.count else None

    def action_move(self, by: int) -> None:
        """Move the cursor to the next or previous line that leads somewhere, past what belongs to the last one.

        If none is within a page, nothing is passed over that has not been on the screen: the cursor moves by a line.
        """
        way = 1 if by > 0 else -1
        for _ in range(abs(by)):
            near = self.cursor + way * self.page_height
            ahead = range(self.cursor + way, max(-1, min(near, self.count)), way)
            items = (index for index in ahead if self.lines[index].target and not self.lines[index].continues)
            self.cursor = next(items, self.cursor + way)

    @property
    def count(self) -> int:
        return len(self.lines)

    def text_of(self, index: int) -> str:
        return self.lines[index].text

    def line_prefix(self, index: int) -> list[Segment]:
        if not self._marks:
            return []
        item = self.lines[index]
        mark = "▸ " if item.target and not item.continues else "  "
        return [Segment(mark, role_style("key", self.palette))]

    def draw_line(self, index: int) -> list[Segment]:
        palette = self.palette
        return [Segment(text, role_style(role, palette)) for text, role in self.lines[index].fragments]
