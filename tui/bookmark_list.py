"""The dialog with all bookmarks: go to one, or remove some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui.bookmarks import Bookmark
from tui.dialog import ListDialog
from tui.key_bindings import footer_key
from tui.location import Location
from tui.styled_text import one_line
from tui.views import screen_named
from tui.widgets.table import Column, Row


class BookmarkList(ListDialog[Bookmark, Location]):
    """Returns the location that the user chose, or ``None``."""

    COLUMNS: ClassVar[Sequence[Column]] = (Column("where", max_width=40), Column("line", max_width=60), Column("note"))
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("escape,q", "dismiss", "close", "bookmarks.close"),
        footer_key("D,delete", "remove", "remove", "bookmarks.remove", "remove the bookmark"),
    ]

    def __init__(self, marks: Sequence[Bookmark], changed: Callable[[list[Bookmark]], None]) -> None:
        """``changed`` is called with what is left when one is removed."""
        super().__init__(marks)
        self._changed = changed

    def on_mount(self) -> None:
        self.table.border_subtitle = "enter goes there, D removes it, escape closes"
        self._show()

    def _show(self) -> None:
        self.table.border_title = f"bookmarks: {len(self.items):,}"
        self.table.show([_row(number, mark) for number, mark in enumerate(self.items)])

    def answer(self, item: Bookmark) -> Location:
        return item.place

    def action_remove(self) -> None:
        """Remove the bookmark under the cursor."""
        if self.selected is not None:
            del self.items[int(self.table.key or 0)]
            self._changed(self.items)
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
