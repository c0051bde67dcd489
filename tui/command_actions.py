"""Actions that run a command of dynadiag on what is open: `fix`, and `diff` with another recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dynadiag.errors import DynadiagError
from tui.location import Location
from tui.recording_app import RecordingApp
from tui.styled_text import Line, line

if TYPE_CHECKING:
    from tui.search_process import SearchCommand

__all__ = ["CommandActionsApp"]


class CommandActionsApp(RecordingApp):
    """Asks what a command needs, then shows it while it runs."""

    def action_fix(self) -> None:
        """Ask the user, then look for fixes of the program."""
        from tui.confirm import Choice, Confirm
        from tui.search_process import search_command

        try:
            command = search_command("fix", self.session.run)
        except DynadiagError as error:
            self.report_problem(str(error))
            return
        lines = [
            line((f"$ {command.text}", "strong")),
            line((f"in {command.folder}", "dim")),
            Line(),
            line("Changes are tried in copies of your files; yours stay as they are."),
            line("This runs the program that the recording names many times, with all its side effects."),
        ]
        self.push_screen(Confirm(Choice(command, lines)), self._run_command)

    def action_diff(self) -> None:
        """Ask for another recording, and show where this one differs from it first."""
        if self.session.live:
            self.notify("this recording is still being written", severity="warning")
        else:
            others = [path for path in self.paths if path != self.session.path]
            self.pick_recording(self._diff_with, others[-1] if others else self.session.path, verb="compares")

    def _diff_with(self, path: Path | None) -> None:
        if path is not None:
            from tui.diff_screen import DiffScreen

            self.push_screen(DiffScreen(path, self.session), self._go_to_side)

    def _go_to_side(self, chosen: tuple[Path, Location] | None) -> None:
        if chosen is not None:
            self.go_to_in(*chosen)

    def _run_command(self, command: SearchCommand | None) -> None:
        if command is not None:
            from tui.command_screen import CommandScreen

            self.push_screen(CommandScreen(command))

    def pick_recording(
        self, then: Callable[[Path | None], None], cursor: Path, *, first: bool = False, verb: str = "opens"
    ) -> None:
        """List the recordings of the state folder and of the open ones' folders, and hand over the chosen one."""
        from tui.picker import Picker

        opened = self.paths or [self.session.path]
        folders = [*([self.folder] if self.folder else []), *(path.parent for path in opened)]
        self.push_screen(Picker(folders, cursor, first=first, verb=verb), then)
