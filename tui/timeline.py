"""The time line of the whole run: compiles and recompiles, their phases, cache lookups, C++ compiles, every rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from dynadiag.explanation.formatting import duration
from dynadiag.render.time_slices import Slice, read_slices
from tui.dialog import ListDialog
from tui.key_bindings import footer_key
from tui.location import Location
from tui.session import Session
from tui.styled_text import one_line
from tui.widgets.table import Column, LazyRows, Row

_MAX_SLICES = 5_000  # the longest ones are shown
_OTHER_COLUMNS = 88  # beside the bar
_MIN_BAR = 20  # columns


def bar(start: float, end: float, window: tuple[float, float], columns: int) -> str:
    """Return a slice as a bar in a window of time; one outside of it as an arrow to its side.

    >>> bar(1.0, 2.0, (0.0, 4.0), 8)
    '  ██'
    >>> bar(5.0, 6.0, (0.0, 4.0), 8)
    '       ▸'
    """
    first, last = window
    if end < first:
        return "◂"
    if start > last:
        return " " * (columns - 1) + "▸"
    scale = columns / max(last - first, 1e-9)
    begin = min(int(max(start - first, 0) * scale), columns - 1)
    return " " * begin + "█" * max(1, min(round((min(end, last) - max(start, first)) * scale), columns - begin))


class TimelineScreen(ListDialog[Slice, Location]):
    """Returns the compile to go to, or ``None``. It may be sorted by any column, filtered, and zoomed."""

    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("start", numeric=True),
        Column("seconds", numeric=True),
        Column("rank", spare=1),
        Column("compile"),
        Column("kind", max_width=9),
        Column("what", max_width=32, is_path=True),
        Column("time line", min_last_width=_MIN_BAR),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("escape,q,v", "dismiss", "close", "timeline.close"),
        footer_key("plus,equals_sign", "zoom(0.5)", "zoom in", "timeline.in"),
        footer_key("minus", "zoom(2.0)", "zoom out", "timeline.out"),
        footer_key("z", "fit", "zoom to it", "timeline.fit", "show the slice under the cursor in the full width"),
    ]

    def __init__(self, session: Session, rank: int, paths: Sequence[Path], start: str | None) -> None:
        """`paths` are all recordings that are open; `start` is the compile that the cursor starts at."""
        super().__init__()
        self._session, self._rank, self._paths, self._start = session, rank, paths, start
        self._window = self._whole = (0.0, 1.0)
        self._title = ""

    def on_mount(self) -> None:
        self.table.border_title = "time line: reading ..."
        self.table.border_subtitle = "+ - zoom, z shows one in full, s sorts, f filters, enter goes, esc closes"
        self.fetch("slices", self._read, self._show)

    def _read(self) -> list[Slice]:
        found = read_slices(self._session.recording, self._session.explanation(), self._rank)
        for rank, path in enumerate(self._paths):
            if rank != self._rank:
                with Session.open(path) as other:
                    found += read_slices(other.recording, other.explanation(), rank)
        return found

    def fetch_failed(self, problem: str) -> None:
        self.table.border_title = one_line(problem)

    def _show(self, found: list[Slice]) -> None:
        kept = sorted(
            sorted(found, key=lambda one: one.start - one.end)[:_MAX_SLICES], key=lambda one: (one.start, -one.end)
        )
        self.items = kept
        if kept:
            self._window = self._whole = kept[0].start, max(one.end for one in kept)
        title = "time line of the run" if kept else "no time line was recorded"
        hidden = len(found) - len(kept)
        shorter = f", {hidden:,} shorter ones left out" if hidden else ""
        whole = f": {duration(self._whole[1] - self._whole[0])}{shorter}" if kept else ""
        self._title = f"{title}{whole}"
        self._draw()
        chosen = (place for place, one in enumerate(kept) if one.compile_id == self._start and one.rank == self._rank)
        self.table.go_to_key(next(chosen, 0))

    def _draw(self) -> None:
        first, last = (time - self._whole[0] for time in self._window)
        part = "" if self._window == self._whole else f", from {first:.3f} to {last:.3f} s"
        self.table.border_title = f"{self._title}{part}"
        columns = max(_MIN_BAR, self.app.size.width - _OTHER_COLUMNS)
        self.table.show(LazyRows(len(self.items), lambda index: self._row(index, columns)))

    def _row(self, index: int, columns: int) -> Row:
        one = self.items[index]
        times = (f"{one.start - self._whole[0]:.3f}", f"{one.end - one.start:.3f}")
        cells = (*times, str(one.rank), one.compile_id, one.kind, f"{' ' * one.depth}{one.name}")
        role = {"compile": "good", "recompile": "recompile", "cache": "dim"}.get(one.kind, "")
        return Row((*cells, bar(one.start, one.end, self._window, columns)), index, role)

    def action_zoom(self, factor: float) -> None:
        """Show a shorter or longer window around the slice under the cursor, within the run."""
        if (one := self.selected) is not None:
            length = (self._window[1] - self._window[0]) * factor
            self._show_window((one.start + one.end - length) / 2, (one.start + one.end + length) / 2)

    def action_fit(self) -> None:
        if (one := self.selected) is not None:
            self._show_window(one.start, one.end if one.end > one.start else one.start + 0.001)

    def _show_window(self, first: float, last: float) -> None:
        self._window = max(first, self._whole[0]), min(last, self._whole[1])
        self._draw()

    def answer(self, item: Slice) -> Location | None:
        rank = item.rank if self._paths else None
        return Location("compiles", compile_id=item.compile_id, rank=rank) if item.compile_id != "-" else None
