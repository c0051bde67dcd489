"""The picker: the recordings of the state folder, the newest first, to open one or to delete some."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from dynadiag.explanation.formatting import size_text
from dynadiag.render.recordings import ListedRecording, list_recordings
from tui.dialog import Choice, Confirm, ListDialog
from tui.key_bindings import footer_key
from tui.styled_text import line, one_line
from tui.widgets.table import Column, Row


def age_text(seconds: float) -> str:
    """Return an age in the largest unit that it has at least two of."""
    units = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
    return next((f"{seconds / size:,.0f} {unit}" for size, unit in units if seconds >= 2 * size), "just now")


class Picker(ListDialog[ListedRecording, Path]):
    """Returns the recording that the user chose, or ``None``."""

    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("program", max_width=36, is_path=True),
        Column("what came of it", max_width=48),
        Column("size", numeric=True, spare=1),
        Column("age", max_width=14),
        Column("file"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("escape", "dismiss", "close", "picker.close"),
        footer_key("q", "leave", "close", "picker.leave"),
        footer_key("D,delete", "delete", "delete", "picker.delete", "delete the recording"),
    ]

    def __init__(self, folders: Sequence[Path], opened: Path, *, first: bool, verb: str) -> None:
        """``opened`` is the recording that is open; the cursor starts on it. ``verb`` is what enter does with one.

        If the browser starts with this list (``first``), `q` ends the browser.
        """
        super().__init__()
        self._first, self._verb = first, verb
        self._folders, self._opened = folders, opened.resolve()

    def on_mount(self) -> None:
        self.table.border_title = "recordings: reading ..."
        self.table.border_subtitle = f"enter {self._verb}, f filters, s sorts, D deletes, escape closes"
        self._read()

    def _read(self) -> None:
        self.fetch("list", lambda: list_recordings(self._folders), self._show)

    def _show(self, found: list[ListedRecording]) -> None:
        self.items = found
        self.table.show([_row(number, item) for number, item in enumerate(found)])
        self.table.border_title = f"recordings, the newest first: {len(found):,}"
        self.table.go_to_key(next((i for i, item in enumerate(found) if item.path == self._opened), 0))
        self._opened = Path()

    def action_leave(self) -> None:
        """Close the list, or end the browser if it started with this list."""
        if self._first:
            self.app.exit(0)
        else:
            self.dismiss()

    def answer(self, item: ListedRecording) -> Path:
        return item.path

    def action_delete(self) -> None:
        if (item := self.selected) is not None:
            text = (line((f"delete {one_line(str(item.path))}", "strong")), line(item.program), line(item.verdict))
            self.app.push_screen(Confirm(Choice(item, text), title="delete this?", verb="deletes it"), self._delete)

    def _delete(self, item: ListedRecording | None) -> None:
        if item is None:
            return
        try:
            item.path.unlink()
        except OSError as error:
            self.notify(f"{item.path}: {error.strerror}", severity="error", markup=False)
        self._opened = item.path
        self._read()


def _row(number: int, item: ListedRecording) -> Row:
    role = {True: "", False: "error", None: "dim"}[item.good]
    age = age_text(max(0.0, time.time() - item.changed))
    cells = (item.program, item.verdict, size_text(item.size), age, one_line(item.path.name))
    return Row(cells, number, role)
