"""The base class of screens with a list and the detail of the selected row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from tui.key_bindings import hidden_key
from tui.location import Location
from tui.styled_text import Line, line, one_line
from tui.views.base import View
from tui.widgets.lines import FilterableLines, Lines
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Column, Row, Table

if TYPE_CHECKING:
    from tui.documents import Document


class ListingView(View):
    """Subclasses define the columns, read rows and detail in a worker, and return the target of a row."""

    COLUMNS: ClassVar[Sequence[Column]] = ()
    NOTHING: ClassVar[str] = "none were recorded"
    DETAIL: ClassVar[str] = "detail"
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden_key("z", "zoom", "show the detail in full height, and back", "list.zoom"),
        hidden_key("e", "edit", "open what enter goes to in $EDITOR", "list.edit"),
    ]
    LAZY: ClassVar[bool] = False
    WRAP: ClassVar[bool] = True  # wrap the detail; code is scrolled sideways instead

    def __init__(self) -> None:
        super().__init__(classes="listing")
        self._pending_key: int | None = None  # the row to go to once the rows are read
        self.detail_columns = 1  # of the detail pane, when its text was asked for

    def compose(self) -> ComposeResult:
        yield Table(self.COLUMNS, lazy=self.LAZY, id=f"{self.NAME}-list")
        yield StyledLines(id=f"{self.NAME}-detail", classes="detail", wrap=self.WRAP)

    def on_mount(self) -> None:
        self.lines.border_title = self.TITLE
        self.details.border_title = self.DETAIL

    @property
    def table(self) -> Table:
        return self.query_one(f"#{self.NAME}-list", Table)

    @property
    def details(self) -> StyledLines:
        return self.query_one(f"#{self.NAME}-detail", StyledLines)

    @property
    def lines(self) -> Lines:
        """The list, or what is shown in its place."""
        return self.table

    @property
    def key(self) -> int | str | None:
        return self.table.key

    def first_focus(self) -> Widget:
        return self.lines if self.lines.display else self.details

    @property
    def is_reading(self) -> bool:
        """Whether new rows are being read. The visible rows may then be of another recording."""
        return "rows" in self._pending

    def load(self) -> None:
        self.fetch("rows", self.rows, self._show)

    def columns(self) -> Sequence[Column]:
        """Return the columns of the rows that were read."""
        return self.COLUMNS

    def rows(self) -> Sequence[Row]:
        """Read the rows."""
        raise NotImplementedError

    def detail(self, key: int | str) -> Sequence[Line]:
        """Read the detail of a row."""
        raise NotImplementedError

    def target_of(self, key: int | str) -> Location | None:  # noqa: ARG002 - subclasses use it
        """Return where enter on a row goes, or ``None``."""
        return None

    def show_problem(self, reason: str) -> None:
        self.details.show_note(line((one_line(reason), "error")))

    def _show(self, rows: Sequence[Row]) -> None:
        self.table.show(rows, self.columns())
        self.table.show_count()
        self.refresh_bindings()
        if not rows:
            self.details.show_note(line((self.nothing(self.NOTHING), "dim")))
        if self._pending_key is not None:
            self.table.go_to_key(self.key_of(self._pending_key))
            self._pending_key = None

    def key_of(self, item: int) -> int:
        """The key of the row that shows a record."""
        return item

    def go_to(self, place: Location) -> None:
        if place.item is not None and not self.table.go_to_key(self.key_of(place.item)):
            self._pending_key = place.item

    def location(self) -> Location:
        key = self.key
        return Location(self.NAME, item=key if isinstance(key, int) else None)

    def cursor_moved(self, lines: Lines) -> None:
        if lines is self.lines:
            self.debounce(self._read_detail)

    def on_resize(self, _: events.Resize) -> None:
        self.call_after_refresh(self._fit_detail)

    def _fit_detail(self) -> None:
        """Read the detail again if it was read for another width, or not yet, as the screen was hidden."""
        if self.is_open and self.details.columns != self.detail_columns:
            self.cursor_moved(self.lines)

    def _read_detail(self) -> None:
        key = self.key
        if key is not None and not self.is_reading and self.details.size.width:
            self.fetch_detail(key)
        elif key is None and isinstance(self.lines, FilterableLines) and self.lines.whole_count:
            self.details.show(())

    def fetch_detail(self, key: int | str) -> None:
        """Read the detail of a row and show it. How wide it is, only the thread of the screen may ask."""
        self.detail_columns = self.details.columns
        self.fetch("detail", lambda: self.detail(key), self.details.show)

    def line_chosen(self, lines: Lines) -> None:
        self.browser.go_to(self._target(lines))

    def _target(self, lines: Lines | None) -> Location | None:
        """Where enter goes: from the detail, or from the row."""
        key = self.key
        of_detail = self.details.target if lines is self.details else None
        return of_detail or (self.target_of(key) if key is not None and not self.is_reading else None)

    def action_edit(self) -> None:
        from tui.documents import DocumentRef, read_document  # the first screen does not need it

        target = self._target(self.browser.focused_lines)
        key, number = (target.document or "", target.line or 1) if target is not None else ("", 1)
        kind = {"source": "source", "event": "kernel"}.get(key.partition(":")[0])
        if kind is None:
            self.notify("this line leads to no document", severity="warning")
            return
        ref = DocumentRef(key, kind, key.partition(":")[2])

        def edit(document: Document) -> None:
            if document.note:
                self.notify(document.note, severity="warning")
            else:
                self.browser.edit_document(document, number)

        self.fetch("edit", lambda: read_document(self.session, ref), edit)

    def action_zoom(self) -> None:
        """Give the detail the height of the list, too, or show the list again."""
        self.lines.display = not self.lines.display
        (self.lines if self.lines.display else self.details).focus()
