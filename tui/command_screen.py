"""Shows a command of dynadiag over the other screens: what it says while it runs, then its report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.timer import Timer

from tui.command_process import SEARCH, CommandProcess
from tui.dialog import Dialog
from tui.key_bindings import footer_key
from tui.location import Location
from tui.search_summary import search_words
from tui.styled_text import Fragment, Line, line, one_line
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines

_WIDTH = 0.96  # of the terminal's
_FRAME = 5  # columns of the border, the padding and a scrollbar
_REFRESH_SECONDS = 0.1  # seconds between two updates
_TICK_SECONDS = 1.0
_ROLES = {"+": "add", "-": "remove", "@": "gutter"}  # of a line of a patch, by its first character
_RESULTS = {
    ("explain", 0): ("the program has ended; enter opens its recording", "good"),
    ("fix", 0): ("every root cause has a proved fix", "good"),
    ("fix", 1): ("some root causes have no proved fix", "break"),
    ("fix", 3): ("there is nothing to fix", "good"),
    ("fix", 4): ("the program fails uncompiled", "error"),
    ("compare", 0): ("measured; enter opens the recordings of the modes", "good"),
    ("compare", 1): ("no compile mode could be measured", "error"),
    ("kernels", 0): ("the kernels were timed", "good"),
    ("report", 0): ("the page is written", "good"),
}
_STOPPED = ("stopped", "break")


class CommandScreen(Dialog[tuple[Path, Location]]):
    """Shows a command. It goes on when the screen is closed; `x` stops it, and enter opens what it has recorded."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("x", "stop", "stop", "command.stop", "stop the command"),
        footer_key("escape,q", "dismiss", "close", "command.close", "close; the command goes on"),
    ]

    CLOSES: ClassVar[str] = "escape closes, and it goes on"  # what escape does while the command runs

    def __init__(self, process: CommandProcess) -> None:
        super().__init__()
        self.process = process
        self._refresh_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield StyledLines(wrap=True)

    def on_mount(self) -> None:
        self.lines.border_title = one_line(self.process.command.brief)
        self.set_interval(_TICK_SECONDS, self._tick)
        self.call_after_refresh(self._refresh)

    @property
    def lines(self) -> StyledLines:
        return self.query_one(StyledLines)

    def on_lines_chosen(self, _: Lines.Chosen) -> None:
        recording = self.process.recording
        if recording is not None:
            self.dismiss((recording, Location("trials" if self.process.command.slot == SEARCH else "overview")))

    def action_stop(self) -> None:
        if self.process.running:
            self.process.stop()

    def _tick(self) -> None:
        if not self.process.finished:
            self._refresh()

    def refresh_soon(self) -> None:
        """Show what is new. A command may say more than anybody can read."""
        if self._refresh_timer is None:
            self._refresh_timer = self.set_timer(_REFRESH_SECONDS, self._refresh)

    def _refresh(self) -> None:
        self._refresh_timer = None
        if self.is_open:
            opens = ["enter opens the recording"] if self.process.recording is not None else []
            stops = [] if self.process.finished else ["x stops it"]
            closes = "escape closes" if self.process.finished else self.CLOSES
            self.lines.border_subtitle = ", ".join([*opens, *stops, closes])
            self.lines.show(list(_command_lines(self.process)), keep=True)


def text_columns(width: int) -> int:
    """The columns of the text of this screen in a terminal of this width. What it shows is not wrapped twice then."""
    return int(width * _WIDTH) - _FRAME


def result_of(process: CommandProcess) -> tuple[str, str]:
    """What came of a command that has ended, and the role of these words."""
    if process.command.slot == SEARCH:
        return search_words(process.command.kind, process.exit_code)
    if process.stopped:
        return _STOPPED
    code = process.exit_code or 0
    known = _RESULTS.get((process.command.kind, code))
    if known is None and process.command.kind == "explain" and process.recording is not None:
        return f"the program ended with exit code {code}; enter opens its recording", "error"
    return known or (f"ended with exit code {code}", "error")


def state_line(process: CommandProcess, *more: Fragment) -> Line:
    """What came of a command; of one that runs, for how long it has run."""
    if process.finished:
        return line(result_of(process), *more)
    state = ("● stopping  ", "break") if process.stopping else ("● running  ", "good")
    return line(state, (f"{time.monotonic() - process.started:.0f} s  ", "dim"), *more)


def _command_lines(process: CommandProcess) -> Iterator[Line]:
    yield state_line(process)
    if not process.finished:
        newest = list(process.messages)[:-4:-1]  # what the command said last
        yield from (line(f"  {one_line(text)}") for text in newest)
    yield line((f"in {process.command.folder}", "dim"))
    yield Line()
    roles = _ROLES if process.command.kind == "fix" else {}
    yield from (line((text, roles.get(text[:1], ""))) for text in process.report)
    if process.finished and not process.report:
        yield from (line((text, "dim")) for text in process.messages)
