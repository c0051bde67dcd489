"""The picker: the recordings of the state folder, to open one or to delete some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from tui.confirm import Choice, Confirm
from tui.dialog import ListDialog
from tui.key_bindings import footer_key
from tui.recording_list import ListedRecording, age_of, list_recordings, size_text
from tui.styled_text import line, one_line
from tui.widgets.table import Column, Row


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
        self.run_worker(self._read, thread=True, exclusive=True)

    def _read(self) -> None:
        found = list_recordings(self._folders)
        self.app.call_from_thread(self._show, found)

    def _show(self, found: list[ListedRecording]) -> None:
        if not self.is_open:
            return
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
        """Delete the recording under the cursor, after a question."""
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
        self.run_worker(self._read, thread=True, exclusive=True)


def _row(number: int, item: ListedRecording) -> Row:
    role = {True: "", False: "error", None: "dim"}[item.good]
    cells = (item.program, item.verdict, size_text(item.size), age_of(item.changed), one_line(item.path.name))
    return Row(cells, number, role)
