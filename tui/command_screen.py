"""Runs a command of dynadiag over the other screens: what it says while it runs, then its report."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer

from tui.dialog import Dialog
from tui.location import Location
from tui.search_process import SearchCommand, SearchProcess
from tui.styled_text import Line, line, one_line
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines

__all__ = ["CommandScreen", "diff_command"]

_REFRESH_SECONDS = 0.1  # seconds between two updates
_TICK_SECONDS = 1.0
_ROLES = {"+": "add", "-": "remove", "@": "gutter"}  # of a line of a patch, by its first character
_RESULTS = {
    ("fix", 0): ("every root cause has a proved fix", "good"),
    ("fix", 1): ("some root causes have no proved fix", "break"),
    ("fix", 3): ("there is nothing to fix", "good"),
    ("fix", 4): ("the program fails uncompiled", "error"),
}
_STOPPED = ("stopped", "break")


def diff_command(before: Path, after: Path) -> SearchCommand:
    """Return the command that compares two recordings. It runs no program."""
    words = (str(before.absolute()), str(after.absolute()))
    return SearchCommand("diff", (sys.executable, "-m", "dynadiag", "diff", *words), before.absolute().parent)


class CommandScreen(Dialog[tuple[Path, Location]]):
    """Shows one command that runs. Leaving the screen stops it. One of two recordings may lead to a place in one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "stop", "stop", id="command.stop", tooltip="stop the command"),
        Binding("escape,q", "leave", "close", id="command.close", tooltip="close, and stop the command if it runs"),
    ]

    def __init__(self, command: SearchCommand) -> None:
        super().__init__()
        self.process = SearchProcess(command, self._refresh_soon)
        self._refresh_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield StyledLines(wrap=True)

    def on_mount(self) -> None:
        self.lines.border_title = one_line(self.process.command.brief)
        self.set_interval(_TICK_SECONDS, self._tick)
        self.run_worker(self.process.run(), exit_on_error=False)
        self.call_after_refresh(self._refresh)

    async def on_unmount(self) -> None:
        await self.process.shut_down()

    @property
    def lines(self) -> StyledLines:
        """What is shown."""
        return self.query_one(StyledLines)

    def on_lines_moved(self, message: Lines.Moved) -> None:
        message.stop()

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        message.stop()

    def action_stop(self) -> None:
        """Stop the command."""
        if self.process.running:
            self.process.stop()

    def action_leave(self) -> None:
        """Close the screen. A command that runs is stopped."""
        self.process.stop()
        self.dismiss()

    def _tick(self) -> None:
        if not self.process.finished:
            self._refresh()

    def _refresh_soon(self) -> None:
        if self._refresh_timer is None:
            self._refresh_timer = self.set_timer(_REFRESH_SECONDS, self._refresh)

    def _refresh(self) -> None:
        self._refresh_timer = None
        if self.is_open:
            done = self.process.finished
            self.lines.border_subtitle = "escape closes" if done else "x stops it, escape stops it and closes"
            self.lines.show(list(_command_lines(self.process)), keep=True)


def _command_lines(process: SearchProcess) -> Iterator[Line]:
    if process.finished:
        code = process.exit_code or 0
        known = _STOPPED if process.stopped else _RESULTS.get((process.command.kind, code))
        words, role = known or (f"ended with exit code {code}", "error")
        yield line((words, role))
    else:
        yield line(("● running  ", "good"), (f"{time.monotonic() - process.started:.0f} s  ", "dim"))
        yield from (line(f"  {text}") for text in _phases(process))
    yield line((f"in {process.command.folder}", "dim"))
    yield Line()
    yield from (line((text, _ROLES.get(text[:1], ""))) for text in process.report)
    if process.finished and not process.report:
        yield from (line((text, "dim")) for text in process.messages)


def _phases(process: SearchProcess) -> Iterator[str]:
    """What the command said last, the newest first."""
    trials = [f"trial {item.number}: {item.label}: {item.status}" for item in process.trials[-1:]]
    yield from (one_line(text) for text in (*trials, *list(process.messages)[:-4:-1]))
