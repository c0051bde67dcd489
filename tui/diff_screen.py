"""Two recordings side by side: the differences that `dynadiag diff` found, and both sides of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from dynadiag.diff.difference import Comparison, Difference
from dynadiag.render.paths import source_location
from tui.command_process import CommandProcess
from tui.command_screen import CommandScreen
from tui.diff_sides import Sides, read_sides
from tui.key_bindings import footer_key, hidden_key
from tui.location import Location
from tui.session import Session
from tui.styled_text import Line, line, one_line
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines

_ITEM = "difference"  # the view of a location that is a difference of the list
_MAX_DETAILS = 3  # lines of a difference that has no graphs to show
_NOTHING = "no graph and no source of this difference is in both recordings"


class DiffScreen(CommandScreen):
    """The differences above, both sides below. Enter on a side goes to that line in its recording."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key(".", "change(1)", "next change", "diff.next"),
        hidden_key("comma", "change(-1)", "previous change", "diff.previous"),
    ]

    CLOSES: ClassVar[str] = "escape stops it and closes"

    def __init__(self, process: CommandProcess, before: Path, after: Session) -> None:
        super().__init__(process)
        self._before_path, self._after = before, after
        self._before: Session | None = None
        self._found: Comparison | None = None
        self._shown: Sides | None = None
        self._number: int | None = None  # of the difference that is shown

    def compose(self) -> ComposeResult:
        yield from super().compose()
        with Horizontal(id="sides"):
            yield StyledLines(id="side-before", marks=False)
            yield StyledLines(id="side-after", marks=False)

    def on_unmount(self) -> None:
        self.process.stop()
        if self._before is not None:
            self._before.close()

    @property
    def sides(self) -> tuple[StyledLines, StyledLines]:
        """The panes of the first and of the second recording."""
        return self.query_one("#side-before", StyledLines), self.query_one("#side-after", StyledLines)

    def _refresh(self) -> None:
        if not self.process.document or not self.is_open:
            super()._refresh()
        elif self._found is None:
            self._found = msgspec.convert(self.process.document, Comparison)
            self.lines.border_subtitle = ". next change, enter on a side goes there, escape closes"
            self.lines.show(list(_difference_lines(self._found, self._after.run.cwd)))
            if self._found.first is not None:
                self.add_class("compared")
                leads = Location(_ITEM, item=self._found.first)
                rows = (number for number, each in enumerate(self.lines.lines) if each.target == leads)
                self.lines.move_to(next(rows, 0))

    def on_lines_moved(self, message: Lines.Moved) -> None:
        message.stop()
        if self._found is None or not message.lines.count:
            return
        if message.lines is self.lines:
            target = self.lines.target
            if target is not None and target.item not in (None, self._number):
                self._number = target.item
                item = self._found.differences[target.item or 0]
                self.fetch("sides", lambda: self._read(item), self._show)
        else:
            self._follow(message.lines, message.index)

    def _follow(self, lines: Lines, row: int) -> None:
        """Put the cursor of the other side on the same row, at the same height."""
        for side in self.sides:
            if side is not lines and side.cursor != row and lines.has_focus:
                side.move_to(row)
                side.scroll_to(y=lines.scroll_y, animate=False, immediate=True, force=True)

    def _read(self, item: Difference) -> Sides | None:
        if self._before is None:
            self._before = Session.open(self._before_path)
        return read_sides(self._before, self._after, item)

    def fetch_failed(self, problem: str) -> None:
        self._show(None, problem)

    def _show(self, sides: Sides | None, problem: str = _NOTHING) -> None:
        self._shown = sides
        texts = (sides.before, sides.after) if sides else ([line((one_line(problem), "dim"))], [])
        titles = sides.titles if sides else ("", "")
        for pane, text, title in zip(self.sides, texts, titles, strict=True):
            pane.border_title = title
            pane.show(text)
            if sides:
                first = next(iter(sides.changed), 0)
                pane.move_to(first)
                pane.reveal(first, middle=True)

    def action_change(self, way: int) -> None:
        here = self.sides[1]
        rows = sorted(self._shown.changed, reverse=way < 0) if self._shown else []
        if rows:
            row = next((number for number in rows if number * way > here.cursor * way), rows[0])
            here.focus()
            for side in self.sides:
                side.move_to(row)

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        message.stop()
        before, after = self.sides
        if message.lines is self.lines:
            after.focus()
            return
        side = before if message.lines is before else after
        if (target := side.target) is not None:
            self.dismiss((self._before_path if side is before else self._after.path, target))


def _difference_lines(found: Comparison, cwd: str | None) -> Iterator[Line]:
    """A line for each difference, the one that leads marked, then what could not be compared."""
    for number, item in enumerate(found.differences):
        at = f"{source_location(item.file, item.line, None, cwd)}  " if item.file else ""
        leads = number == found.first
        to = Location(_ITEM, item=number)
        sign = ("◆ ", "break") if leads else ("  ", "")
        yield line(sign, (f"{one_line(item.stage):<12}", "title"), (at, "dim"), one_line(item.text), to=to)
        if not item.nodes and not any(text.startswith("@@") for text in item.details):
            yield from (line((f"    {text}", "dim")) for text in item.details[:_MAX_DETAILS])
    if found.same:
        yield line(("the runs are the same", "good"))
    yield from (line(("note  ", "strong"), one_line(note)) for note in found.notes)
