"""Bookmarks and notes of a recording, and their list. They are a file of the state folder: a recording is only read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
from textual.binding import BindingType

from dynadiag.errors import UnreadableInput
from dynadiag.recording.records import Run
from dynadiag.recording.store import atomic_write
from tui.dialog import ListDialog
from tui.key_bindings import footer_key
from tui.location import Location
from tui.styled_text import one_line
from tui.views import RANKS, SCREENS
from tui.widgets.table import Column, Row

_ID_CHARS = 12  # of the hash that names the file


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A location, the text of its line, and what the user wrote about it."""

    place: Location
    text: str
    note: str = ""


def bookmark_path(folder: Path, run: Run) -> Path:
    """Return the file for a run. It is named by the run and not by the path, so that a recording may be moved."""
    whole = "\n".join(map(str, (run.target, run.argv, run.pid, run.started, run.rank)))
    return folder / "bookmarks" / f"{hashlib.sha256(whole.encode()).hexdigest()[:_ID_CHARS]}.json"


def read_bookmarks(path: Path) -> list[Bookmark]:
    """Read bookmarks; none where the file does not exist. Raises `UnreadableInput` if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Bookmark])
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UnreadableInput(f"{path}: these are no bookmarks ({error}): mend the file or delete it") from error


def write_bookmarks(path: Path, marks: list[Bookmark]) -> None:
    """Write bookmarks. Raises `OSError` or `DynadiagError` if it cannot: then the file is as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path.resolve(), True) as scratch:
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(marks), indent=2))


class BookmarkList(ListDialog[Bookmark, Location]):
    """Returns the location that the user chose, or ``None``."""

    COLUMNS: ClassVar[Sequence[Column]] = (Column("where", max_width=40), Column("line", max_width=60), Column("note"))
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("escape,q", "dismiss", "close", "bookmarks.close"),
        footer_key("D,delete", "remove", "remove", "bookmarks.remove", "remove the bookmark"),
    ]

    def __init__(self, marks: Sequence[Bookmark], keep: Callable[[list[Bookmark]], None]) -> None:
        """``keep`` is called with what is left when one is removed."""
        super().__init__(marks)
        self._keep = keep

    def on_mount(self) -> None:
        self.table.border_subtitle = "enter goes there, D removes it, escape closes"
        self._show()

    def _show(self) -> None:
        self.table.border_title = f"bookmarks: {len(self.items):,}"
        self.table.show([_row(number, mark) for number, mark in enumerate(self.items)])

    def answer(self, item: Bookmark) -> Location:
        return item.place

    def action_remove(self) -> None:
        if self.selected is not None:
            del self.items[int(self.table.key or 0)]
            self._keep(self.items)
            self._show()


def _row(number: int, mark: Bookmark) -> Row:
    place = mark.place
    file = (place.document or "").rpartition("/")[2] if (place.document or "").startswith("source:") else ""
    at = f"{file}:{place.line}" if file and place.line else ""
    where = " ".join(part for part in (_title(place.view), place.compile_id, at) if part)
    return Row((one_line(where), one_line(mark.text), one_line(mark.note)), number)


def _title(view: str) -> str:
    return next((one.title for one in (*SCREENS, RANKS) if one.name == view), view)  # another version may have more
