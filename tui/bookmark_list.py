"""The dialog with all bookmarks: go to one, or remove some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.bookmarks import Bookmark
from tui.dialog import Dialog
from tui.location import Location
from tui.styled_text import one_line
from tui.views import screen_named
from tui.widgets.lines import Lines
from tui.widgets.table import Column, Row, Table

_COLUMNS = (Column("where", max_width=40), Column("line", max_width=60), Column("note"))


class BookmarkList(Dialog[Location]):
    """Returns the location that the user chose, or ``None``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "close", id="bookmarks.close"),
        Binding("D,delete", "remove", "remove", id="bookmarks.remove", tooltip="remove the bookmark"),
    ]

    def __init__(self, marks: Sequence[Bookmark], changed: Callable[[list[Bookmark]], None]) -> None:
        """``changed`` is called with what is left when one is removed."""
        super().__init__()
        self._marks, self._changed = list(marks), changed

    def compose(self) -> ComposeResult:
        yield Table(_COLUMNS)

    def on_mount(self) -> None:
        self.query_one(Table).border_subtitle = "enter goes there, D removes it, escape closes"
        self._show()

    def _show(self) -> None:
        table = self.query_one(Table)
        table.border_title = f"bookmarks: {len(self._marks):,}"
        table.show([_row(number, mark) for number, mark in enumerate(self._marks)])

    def on_lines_moved(self, message: Lines.Moved) -> None:
        message.stop()

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        message.stop()
        key = self.query_one(Table).key
        if isinstance(key, int):
            self.dismiss(self._marks[key].place)

    def action_remove(self) -> None:
        """Remove the bookmark under the cursor."""
        key = self.query_one(Table).key
        if isinstance(key, int):
            del self._marks[key]
            self._changed(self._marks)
            self._show()


def _row(number: int, mark: Bookmark) -> Row:
    place = mark.place
    file = (place.document or "").rpartition("/")[2] if (place.document or "").startswith("source:") else ""
    at = f"{file}:{place.line}" if file and place.line else ""
    where = " ".join(part for part in (_title(place.view), place.compile_id, at) if part)
    return Row((one_line(where), one_line(mark.text), one_line(mark.note)), number)


def _title(view: str) -> str:
    try:
        return screen_named(view).title
    except StopIteration:  # written by another version
        return view
