"""A table whose rows are drawn when they are on the screen. It can be sorted and filtered."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.binding import BindingType
from textual.strip import Strip

from dynadiag.render.wrap import truncate_end, truncate_middle, truncate_start
from tui.colors import role_style
from tui.key_bindings import hidden_key
from tui.widgets.lines import FilterableLines, Lines, cut_columns

T = TypeVar("T")
_GAP = 2
_NUMBER = re.compile(r"-?[\d,]*\.?\d+")
_MEASURED_ROWS = 200  # rows that column widths are computed from
_DEFAULT_MAX_WIDTH = 60
_READABLE_WIDTH = 20  # width of a column below which a spare one is left out instead
_MIN_WIDTH = 14  # minimum width of a column when not all fit
_ON_DEMAND = "they are read on demand, in the order of the log"
_MIN_LAST_WIDTH = 24
_LEFT_OUT = -_GAP  # width of a column that is left out, so that its gap is none either


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. Numbers are aligned right, and the last column takes the remaining width.

    A text that is too wide is cut at its end; in the last column it can be scrolled into view.
    """

    title: str
    numeric: bool = False
    max_width: int = _DEFAULT_MAX_WIDTH
    is_path: bool = False  # a long path keeps its end
    is_name: bool = False  # a long name keeps both ends: often only a number at its end tells it from another
    spare: int = 0  # above 0: left out where others would have too little room, the highest first
    min_last_width: int = _MIN_LAST_WIDTH  # columns that the last column has at least, which is not shortened


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its cells without control characters, its key and its role."""

    cells: tuple[str, ...]
    key: int | str
    role: str = ""


class LazyRows(Sequence[Row]):
    """Rows that are created on demand, because a screen shows only a few of 100,000."""

    def __init__(self, count: int, make: Callable[[int], Row]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        """Return a row, or the rows of a slice."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._count))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._make(index)


class Table(FilterableLines):
    """A table of a sequence of rows. If `lazy`, rows are read only when they are shown."""

    HEADER_ROWS: ClassVar[int] = 1
    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--header"}
    DEFAULT_CSS = """
    Table > .table--header { text-style: bold; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden_key("s", "sort(1)", "sort by the next column", "table.sort"),
        hidden_key("S", "reverse", "reverse the order", "table.reverse"),
    ]

    def __init__(self, columns: Sequence[Column], *, lazy: bool = False, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.columns, self._lazy = columns, lazy
        self._all: Sequence[Row] = ()
        self.rows: Sequence[Row] = ()
        self._natural = [cell_len(column.title) for column in columns]
        self._widths = self._natural
        self._sort: int | None = None
        self._descending = False

    def show(self, rows: Sequence[Row], columns: Sequence[Column] | None = None) -> None:
        """Show other rows, and other columns if given. The cursor stays on the row with its key."""
        key = self.key
        self._all = rows
        if columns is not None and columns != self.columns:
            self.columns, self._sort = columns, None
        self._measure(rows)
        self._arrange(key)

    @property
    def key(self) -> int | str | None:
        """The key of the row under the cursor, or ``None``."""
        return self.rows[self.cursor].key if 0 <= self.cursor < len(self.rows) else None

    def go_to_key(self, key: int | str) -> bool:
        """Put the cursor on a row. Return whether the row exists. A filter that hides it is cleared."""
        index = self._index_of(key)
        if index is None and self.filter:
            self.set_filter("")
            index = self._index_of(key)
        if index is not None:
            self.move_to(index)
        return index is not None

    def _index_of(self, key: int | str) -> int | None:
        if self._lazy and isinstance(key, int):
            return key if key < len(self.rows) else None
        return next((place for place, row in enumerate(self.rows) if row.key == key), None)

    def apply_filter(self) -> None:
        self._arrange(self.key)

    def action_sort(self, by: int) -> None:
        if self._lazy:
            self.notify(f"these rows cannot be sorted: {_ON_DEMAND}", severity="warning")
            return
        places = len(self.columns)
        self._sort = 0 if self._sort is None else (self._sort + by) % places
        self._descending = self.columns[self._sort].numeric
        self._arrange(self.key)

    def sort_by(self, column: int, *, down: bool) -> None:
        """Sort by a column unless the user has chosen one."""
        if self._sort is None:
            self._sort, self._descending = column, down
            self._arrange(self.key)

    def action_reverse(self) -> None:
        self._descending = not self._descending
        self._arrange(self.key)

    def header_clicked(self, column: int) -> None:
        place = 0
        for index, width in enumerate(self._widths):
            place += width + _GAP
            if column < place:
                again = self._sort == index
                self._sort, self._descending = index, not self._descending if again else self.columns[index].numeric
                self._arrange(self.key)
                return

    def _arrange(self, key: int | str | None) -> None:
        rows: Sequence[Row] = self._all
        if self.filter and not self._lazy:
            small = self.filter.lower()
            rows = _pick(rows, [i for i, row in enumerate(rows) if any(small in cell.lower() for cell in row.cells)])
        if self._sort is not None and not self._lazy:
            place, number = self._sort, self.columns[self._sort].numeric
            rows = _sort_rows(rows, place, number=number, down=self._descending)
        self.rows = rows
        self.resize_content(sum(self._widths) + _GAP * len(self._widths))
        if key is not None and not self._lazy:
            self.set_reactive(Lines.cursor, next((i for i, row in enumerate(rows) if row.key == key), 0))
            self.reveal(self.cursor)
        self.post_message(self.Moved(self, self.cursor))

    def _measure(self, rows: Sequence[Row]) -> None:
        """Compute column widths from the first rows, or of lazy rows from the last row and the maximum widths."""
        places = [len(rows) - 1] if self._lazy and rows else range(min(len(rows), _MEASURED_ROWS))
        seen = [rows[index] for index in places]
        last = len(self.columns) - 1  # behind it there is room for the sign of the order
        heads = [cell_len(column.title) + (place < last) for place, column in enumerate(self.columns)]
        self._natural = [
            column.max_width
            if self._lazy and not column.numeric
            else min(column.max_width, max([heads[place], *(cell_len(row.cells[place]) for row in seen)]))
            for place, column in enumerate(self.columns)
        ]
        self._fit()

    def _fit(self) -> None:
        """Shorten the widest columns until the last one is visible, but rather leave out spare ones than cut much."""
        ranked = ((column.spare, place) for place, column in enumerate(self.columns) if column.spare)
        spare = [place for _, place in sorted(ranked)]
        for first in reversed(range(len(spare) + 1)):
            if self._fit_without(spare[first:], _READABLE_WIDTH):
                return
        self._fit_without(spare, _MIN_WIDTH)

    def _fit_without(self, spare: Sequence[int], least: int) -> bool:
        """Set the widths of all columns but the spare ones, and return whether the last one has enough room.

        No column is shortened to fewer than ``least`` columns of the terminal.
        """
        widths = [_LEFT_OUT if place in spare else width for place, width in enumerate(self._natural)]
        bar = 0 if self.show_vertical_scrollbar else self.styles.scrollbar_size_vertical  # it may appear later
        room = self.scrollable_content_region.width - bar - _GAP * (len(widths) - 1)
        over = sum(widths[:-1]) + min(widths[-1], self.columns[-1].min_last_width) - room
        while over > 0:
            longer = [i for i, column in enumerate(self.columns[:-1]) if not column.numeric and widths[i] > least]
            if not longer:
                break
            widths[max(longer, key=lambda place: widths[place])] -= 1
            over -= 1
        if self.columns[-1].is_name:
            widths[-1] = min(widths[-1], max(room - sum(widths[:-1]), self.columns[-1].min_last_width))
        self._widths = widths
        return over <= 0

    def on_resize(self) -> None:
        before = self._widths
        self._fit()
        if self._widths != before:
            self.refresh()

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def whole_count(self) -> int:
        return len(self._all)

    @property
    def is_quick(self) -> bool:
        return not self._lazy and super().is_quick

    @property
    def unfiltered_because(self) -> str:
        return f"these rows cannot be filtered: {_ON_DEMAND} (0 searches the log)" if self._lazy else ""

    def text_of(self, index: int) -> str:
        return "  ".join(self.rows[index].cells)

    def render_line(self, y: int) -> Strip:
        if y >= self.HEADER_ROWS:
            return super().render_line(y)
        left = int(self.scroll_x)
        shown = cut_columns(self._header(), left, left + self._line_width)
        return self._strip(shown, self.get_component_rich_style("table--header"))

    def _header(self) -> list[Segment]:
        titles = [
            column.title + (("▼" if self._descending else "▲") if self._sort == place else "")
            for place, column in enumerate(self.columns)
        ]
        return [Segment(self._format_row(titles), role_style("title", self.palette))]

    def draw_line(self, index: int) -> list[Segment]:
        row = self.rows[index]
        return [Segment(self._format_row(row.cells), role_style(row.role, self.palette))]

    def _format_row(self, cells: Sequence[str]) -> str:
        parts = []
        last = len(self._widths) - 1
        for place, (cell, width, column) in enumerate(zip(cells, self._widths, self.columns, strict=True)):
            if width == _LEFT_OUT:
                continue
            if column.numeric and place < last:
                parts.append(" " * (width - cell_len(cell)) + set_cell_size(cell, min(width, cell_len(cell))))
            elif place == last:
                cell = truncate_middle(cell, width) if column.is_name and _is_name(cell) else cell
                parts.append(" " * (width - cell_len(cell)) + cell if column.numeric else cell)
            else:
                short = truncate_start(cell, width) if column.is_path else truncate_end(cell, width)
                parts.append(set_cell_size(short, width))
        return (" " * _GAP).join(parts)


def _is_name(cell: str) -> bool:
    """Whether a text is a name, which may have a number behind it, and no code or sentence."""
    return cell.partition(" #")[0].replace(".", "").isidentifier()


def before_last(cells: Sequence[T], added: Sequence[T]) -> tuple[T, ...]:
    """Insert cells, or columns, before the last one, which takes the room that is left."""
    return (*cells[:-1], *added, cells[-1])


def _pick(rows: Sequence[Row], places: Sequence[int]) -> Sequence[Row]:
    """Return these rows in this order."""
    return LazyRows(len(places), lambda index: rows[places[index]])


def _sort_rows(rows: Sequence[Row], place: int, *, number: bool, down: bool) -> Sequence[Row]:
    """Sort numbers by value and texts alphabetically. Cells without a number come last in both orders."""
    cells = [row.cells[place] for row in rows]
    if not number:
        return _pick(rows, sorted(range(len(cells)), key=lambda index: cells[index].lower(), reverse=down))
    found = ((index, _NUMBER.match(cell.strip())) for index, cell in enumerate(cells))
    known = {index: float(number[0].replace(",", "")) for index, number in found if number}
    ranked = sorted(known, key=known.__getitem__, reverse=down)
    return _pick(rows, [*ranked, *(index for index in range(len(cells)) if index not in known)])
