"""The picker: the recordings of the state folder, the newest first, to open one or to delete some."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import count
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Run
from tui.dialog import Choice, Confirm, ListDialog
from tui.key_bindings import footer_key
from tui.styled_text import line, one_line
from tui.widgets.table import Column, Row

_SUFFIX = ".dynadiag"
_MAX_LISTED = 500  # recordings that are read
_VERBS = (("break", "broke"), ("recompile", "recompiled"))  # table -> what happened


@dataclass(frozen=True, slots=True)
class ListedRecording:
    """A recording on disk. ``program`` and ``verdict`` are texts for one line; ``good`` says how the program ended."""

    path: Path
    program: str
    verdict: str
    good: bool | None  # None: not known
    size: int  # bytes
    changed: float  # seconds since the epoch


def list_recordings(folders: Iterable[Path]) -> list[ListedRecording]:
    """Read the newest recordings of some folders. One that cannot be read is listed with the reason."""
    found = {path.resolve() for folder in folders for path in folder.glob(f"*{_SUFFIX}")}
    known = [(_changed(path), path) for path in found]
    return [_read(path, changed) for changed, path in sorted(known, reverse=True)[:_MAX_LISTED] if changed]


def size_text(size: int) -> str:
    """Return a number of bytes as megabytes."""
    return f"{size / 1e6:,.1f} MB"


def age_text(seconds: float) -> str:
    """Return an age in the largest unit that it has at least two of."""
    units = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
    return next((f"{seconds / size:,.0f} {unit}" for size, unit in units if seconds >= 2 * size), "just now")


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted in between
        return 0.0


def _read(path: Path, changed: float) -> ListedRecording:
    size = 0
    try:
        size = path.stat().st_size
        with Recording(path) as recording:
            run, totals = recording.run, recording.totals()
            search = _search(recording) if totals.get("trial") else []
    except (DynadiagError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).removeprefix(f"{path}: ")
        return ListedRecording(path, "?", one_line(f"cannot be read: {reason}"), None, size, changed)
    program = one_line((run.target or "?").removeprefix(f"{run.cwd}/"))
    good = None if run.exit_code is None else run.exit_code == 0
    return ListedRecording(path, program, ", ".join([*search, _verdict(run, totals)]), good, size, changed)


def _search(recording: Recording) -> list[str]:
    """The command of a search, and what came of it."""
    from dynadiag.explanation.source import first_event_data, first_payload  # imported in a worker

    name = first_event_data(recording, "dynadiag_search").get("command")
    said = (first_payload(recording, "dynadiag_verdict", dict) or {}).get("verdict")
    return [": ".join(one_line(str(word).replace("_", " ")) for word in (name or "search", said or "no answer"))]


def _verdict(run: Run, totals: dict[str, int]) -> str:
    parts = [f"{verb} {_times(totals[table])}" for table, verb in _VERBS if totals.get(table)]
    parts += [count(totals["trial"], "trial")] if totals.get("trial") else []
    ended = [] if run.exit_code == 0 else ["no exit code" if run.exit_code is None else f"exit code {run.exit_code}"]
    compiled = [] if totals.get("compile") or totals.get("trial") else ["nothing compiled"]
    return ", ".join([*ended, *compiled, *parts]) or count(totals.get("compile", 0), "compile")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def age_of(changed: float) -> str:
    """Return how long ago a file was changed."""
    return age_text(max(0.0, time.time() - changed))


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
