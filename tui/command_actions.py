"""Actions that run a command of dynadiag on what is open: explain, fix, compare, measure, report, and diff."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dynadiag.recording.journal import unused_path
from tui.location import Location
from tui.running_commands import RunningCommands
from tui.screens_app import ScreensApp
from tui.styled_text import one_line

if TYPE_CHECKING:
    from tui.command_process import Command, CommandProcess


_ACCURACY = "--accuracy"


class CommandActionsApp(ScreensApp):
    """Asks what a command needs, shows it while it runs, and goes on with it while other screens are shown.

    Of each kind one command runs at a time, whatever recordings are open, and of the two kinds of searches one. Its key
    shows it again until its end was seen, in the recording that it was started on.
    """

    @cached_property
    def commands(self) -> RunningCommands:
        """The commands that were started here."""
        return RunningCommands(self._command_changed)

    async def on_unmount(self) -> None:
        await self.commands.shut_down()

    def action_explain(self) -> None:
        """Ask the user, then run the program again and record it. Enter opens the recording, also while it runs."""
        output = self._new_recording()
        self._ask_and_run("explain", lambda: [self._program_command("explain", output=output)])

    def _new_recording(self) -> Path:
        """Where a command writes a new recording."""
        folder = self.folder or self.session.path.parent
        with suppress(OSError):  # the command says what it cannot write
            folder.mkdir(parents=True, exist_ok=True)
        return unused_path(folder, self.session.run.target)

    def action_search_program(self, kind: str) -> None:
        """Show the search that runs; if none does, ask the user and start a bisection or a minification.

        Where the program did not fail, propose `--accuracy` first. A recorded search has its own options.
        """
        from dynadiag.explanation.search import read_search
        from tui.command_process import SEARCH
        from tui.overview import has_failed

        def ways() -> list[Command]:
            known, output = read_search(self.session.recording), self._new_recording()
            unknown = [(), (_ACCURACY,)] if has_failed(self.session.run) else [(_ACCURACY,), ()]
            options = unknown if known is None else [known.options]
            return [self._program_command(kind, each, output=output) for each in options]

        self._ask_and_run(SEARCH, ways)

    def action_resume_search(self) -> None:
        """Ask the user, then resume the search of this recording, which was stopped."""
        from dynadiag.explanation.search import read_search
        from tui.command_process import SEARCH

        known = read_search(self.session.recording, running=self.session.live)
        if known is not None and known.command is not None and not known.is_finished:
            command = (known.command, known.options, self.session.final_path)
            self._ask_and_run(SEARCH, lambda: [self._program_command(*command)])
        elif not self._show_running(SEARCH):
            self.notify("there is no stopped search: B and M start one", severity="warning")

    def stop_search(self) -> None:
        """Stop the search that runs on this recording. Its trials are kept."""
        from tui.command_process import SEARCH

        search, running = self.commands.find(SEARCH, self.session.final_path), self.commands.running(SEARCH)
        if search is not None and search.running:
            search.stop()
        elif running is not None:
            name = one_line(running.subject.name)
            self.notify(f"the search on {name} runs: x on its Trials screen stops it", markup=False)
        else:
            self.notify("no search is running")

    def action_fix(self) -> None:
        """Ask the user, then look for fixes of the program."""
        self._ask_and_run("fix", lambda: [self._program_command("fix")])

    def action_compare(self) -> None:
        """Ask the user, then time the function of the program uncompiled and compiled."""
        if ":" in self.session.run.target:
            self._ask_and_run("compare", lambda: [self._program_command("compare")])
        elif not self._show_running("compare"):
            needed = "compare times one function. Record FILE.py:NAME, NAME a function that returns (fn, args)"
            self.report_problem(f"{self.session.run.target}: {needed}")

    def action_measure(self) -> None:
        """Ask the user, then run the generated code and time each kernel."""
        from tui.command_process import recording_command

        if self._is_whole():
            command = recording_command("kernels", self.session.path, "--measure", "--trust")
            self._ask_and_run(command.kind, lambda: [command])

    async def action_report(self) -> None:
        """Ask for a file name, and write the recording as a page to it."""
        from tui.command_process import recording_command

        def write(name: str) -> None:
            path, page = self.session.path, Path(name).expanduser().absolute()
            self._run_and_show(recording_command("report", path, "-o", page) if name else None, path)

        if self._is_whole() and not self._show_running("report"):
            await (await self.prompt()).ask("write the page to (.html): ", self.session.path.stem + ".html", write)

    def action_diff(self) -> None:
        """Ask for another recording, and show where this one differs from it first."""
        from tui.command_process import recording_command
        from tui.diff_screen import DiffScreen

        def compare(path: Path | None) -> None:
            if path is not None:
                process = self._start(recording_command("diff", self.session.path, path.absolute()), self.session.path)
                self.push_screen(DiffScreen(process, path, self.session), self.go_to_in)

        if self._is_whole():
            others = [path for path in self.paths if path != self.session.path]
            self.pick_recording(compare, others[-1] if others else self.session.path, verb="compares")

    def _is_whole(self) -> bool:
        """Whether the recording has ended. If not, the user is told."""
        if self.session.live:
            self.notify("this recording is still being written", severity="warning")
        return not self.session.live

    # Commands that run

    def _program_command(
        self, kind: str, options: tuple[str, ...] = (), resume: Path | None = None, output: Path | None = None
    ) -> Command:
        from tui.command_process import program_command  # the first screen does not need it

        return program_command(kind, self.session.run, options, resume, output)

    def _ask_and_run(self, slot: str, make: Callable[[], Sequence[Command]]) -> None:
        """Show the command of this slot that runs; if none does, ask which of these to start on the open recording.

        `make` may raise `DynadiagError`.
        """
        from tui.dialog import Confirm, command_choice

        subject = self.session.final_path  # another one may be open when the user answers
        if not self._show_running(slot):
            with self.reporting_problems():
                choices = map(command_choice, make())
                self.push_screen(Confirm(*choices), lambda command: self._run_and_show(command, subject))

    def _run_and_show(self, command: Command | None, subject: Path) -> None:
        if command is not None:
            self._show(self._start(command, subject))

    def _start(self, command: Command, subject: Path) -> CommandProcess:
        from tui.command_screen import text_columns

        return self.commands.start(command, subject, text_columns(self.size.width))

    def _show_running(self, kind: str) -> bool:
        """Show the command of this kind that runs, or whose end was not seen. Return whether there is one."""
        here = self.commands.find(kind, self.session.final_path)
        process = here or self.commands.running(kind)
        if process is None:
            return False
        self._show(process)
        if here is None:
            name = one_line(process.subject.name)
            self.notify(f"{process.command.kind} runs on {name}: one at a time", severity="warning", markup=False)
        return True

    def _show(self, process: CommandProcess) -> None:
        from tui.command_screen import CommandScreen

        def closed(chosen: tuple[Path, Location] | None) -> None:
            if process.finished:
                self.commands.remove(process)
            self.go_to_in(chosen)

        self.push_screen(CommandScreen(process), closed)

    def _command_changed(self, process: CommandProcess) -> None:
        """Show what is new of a command: on its screen, or that it has ended."""
        from tui.command_screen import CommandScreen

        if not self.screen_stack:  # the browser ends
            return
        screen, slot = self.screen, process.command.slot
        if isinstance(screen, CommandScreen) and screen.process is process:
            screen.refresh_soon()
        elif process.finished and slot != "diff":
            self._report_end(process)
        if process.finished and slot == "diff":  # only the screen that started it shows it
            self.commands.remove(process)
        if process.finished and _written(process) == self.session.final_path.resolve():
            self.action_reload()

    def _report_end(self, process: CommandProcess) -> None:
        from tui.command_screen import result_of

        command = process.command
        is_here = process.belongs_to(self.session.final_path.resolve())
        name = command.kind if is_here else f"{command.kind} of {one_line(process.subject.name)}"
        where = "" if is_here else " there"
        self.notify(f"{name}: {result_of(process)[0]}; its key shows it{where}", timeout=10, markup=False)

    def pick_recording(
        self, then: Callable[[Path | None], None], cursor: Path, *, first: bool = False, verb: str = "opens"
    ) -> None:
        """List the recordings of the state folder and of the open ones' folders, and hand over the chosen one."""
        from tui.picker import Picker

        opened = self.paths or [self.session.path]
        folders = [*([self.folder] if self.folder else []), *(path.parent for path in opened)]
        self.push_screen(Picker(folders, cursor, first=first, verb=verb), then)


def _written(process: CommandProcess) -> Path | None:
    """The recording that a command has changed."""
    path = process.subject if process.command.kind == "kernels" else process.recording  # its times are kept there
    return path.resolve() if path is not None else None
