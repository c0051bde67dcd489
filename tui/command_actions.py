"""Actions that run a command of dynadiag on what is open: explain, fix, compare, measure, report, and diff."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import unused_path
from tui.location import Location
from tui.recording_app import RecordingApp
from tui.running_commands import RunningCommands
from tui.styled_text import one_line

if TYPE_CHECKING:
    from tui.command_process import Command, CommandProcess
    from tui.confirm import Choice
    from tui.session import Session


_RUNS_ONCE = "This runs the program of the recording, with all its side effects."


class CommandActionsApp(RecordingApp):
    """Asks what a command needs, shows it while it runs, and goes on with it while other screens are shown.

    Of each kind one command runs at a time, whatever recordings are open, and of the two kinds of searches one. Its key
    shows it again until its end was seen, in the recording that it was started on.
    """

    def __init__(self, session: Session, paths: Sequence[Path] = (), rank: int = 0, folder: Path | None = None) -> None:
        super().__init__(session, paths, rank, folder)
        self._commands = RunningCommands(self._command_changed)

    async def on_unmount(self) -> None:
        await self._commands.shut_down()

    def action_explain(self) -> None:
        """Ask the user, then run the program again and record it. Enter opens the recording, also while it runs."""
        from tui.command_process import program_command

        run, folder = self.session.run, self.folder or self.session.path.parent
        with suppress(OSError):  # the command says what it cannot write
            folder.mkdir(parents=True, exist_ok=True)
        output = unused_path(folder, run.target)
        self._ask_and_run("explain", lambda: program_command("explain", run, output=output), (_RUNS_ONCE,))

    def action_fix(self) -> None:
        """Ask the user, then look for fixes of the program."""
        from tui.command_process import program_command
        from tui.confirm import RUNS_OFTEN

        copies = "Changes are tried in copies of your files; yours stay as they are."
        self._ask_and_run("fix", lambda: program_command("fix", self.session.run), (copies, RUNS_OFTEN))

    def action_compare(self) -> None:
        """Ask the user, then time the function of the program uncompiled and compiled."""
        from tui.confirm import RUNS_OFTEN

        self._ask_and_run("compare", self._comparison, ("Each compile mode runs in a process of its own.", RUNS_OFTEN))

    def _comparison(self) -> Command:
        from tui.command_process import program_command

        target = self.session.run.target
        if ":" not in target:
            raise DynadiagError(
                f"{target}: compare times one function. Record FILE.py:NAME, NAME a function that returns (fn, args)"
            )
        return program_command("compare", self.session.run)

    def action_measure(self) -> None:
        """Ask the user, then run the generated code and time each kernel."""
        from tui.command_process import recording_command

        if self._is_whole():
            command = recording_command("kernels", self.session.path, "--measure", "--trust")
            told = (
                "This runs the generated code of the recording on random inputs. Trust whoever made it.",
                "The times are kept in the recording.",
            )
            self._ask_and_run(command.kind, lambda: command, told)

    async def action_report(self) -> None:
        """Ask for a file name, and write the recording as a page to it."""
        if self._is_whole() and not self._show_running("report"):
            prompt = await self.prompt()
            await prompt.ask("write the page to (.html): ", self.session.path.stem + ".html", self._write_page)

    def _write_page(self, name: str) -> None:
        from tui.command_process import recording_command

        if name:
            page = Path(name).expanduser().absolute()
            path = self.session.path
            self._run_and_show(recording_command("report", path, "-o", page), path)

    def action_diff(self) -> None:
        """Ask for another recording, and show where this one differs from it first."""
        if self._is_whole():
            others = [path for path in self.paths if path != self.session.path]
            self.pick_recording(self._diff_with, others[-1] if others else self.session.path, verb="compares")

    def _diff_with(self, path: Path | None) -> None:
        if path is not None:
            from tui.command_process import recording_command
            from tui.diff_screen import DiffScreen

            process = self._start(recording_command("diff", self.session.path, path.absolute()), self.session.path)
            self.push_screen(DiffScreen(process, path, self.session), self._open_chosen)

    def _open_chosen(self, chosen: tuple[Path, Location] | None) -> None:
        if chosen is not None:
            self.go_to_in(*chosen)

    def _is_whole(self) -> bool:
        """Whether the recording has ended. If not, the user is told."""
        if self.session.live:
            self.notify("this recording is still being written", severity="warning")
        return not self.session.live

    # Commands that run

    @property
    def commands(self) -> RunningCommands:
        return self._commands

    def _ask_and_run(self, kind: str, make: Callable[[], Command], told: Sequence[str]) -> None:
        """Show the command of this kind that runs; if none does, ask the user and start one."""
        from tui.confirm import command_choice

        if not self._show_running(kind):
            self.ask_to_run(lambda: [command_choice(make(), *told)])

    def ask_to_run(self, make: Callable[[], Sequence[Choice[Command]]]) -> None:
        from tui.confirm import Confirm

        subject = self.session.final_path  # another one may be open when the user answers
        try:
            choices = make()
        except DynadiagError as error:
            self.report_problem(str(error))
        else:
            self.push_screen(Confirm(*choices), lambda command: self._run_and_show(command, subject))

    def _run_and_show(self, command: Command | None, subject: Path) -> None:
        from tui.command_process import SEARCH

        if command is not None:
            process = self._start(command, subject)
            if command.slot != SEARCH:  # the Trials screen shows it
                self._show(process)

    def _start(self, command: Command, subject: Path) -> CommandProcess:
        from tui.command_screen import text_columns

        return self._commands.start(command, subject, text_columns(self.size.width))

    def _show_running(self, kind: str) -> bool:
        """Show the command of this kind that runs, or whose end was not seen. Return whether there is one."""
        here = self._commands.find(kind, self.session.final_path)
        process = here or self._commands.running(kind)
        if process is None:
            return False
        self._show(process)
        if here is None:
            name = one_line(process.subject.name)
            self.notify(f"{kind} runs on {name}: one at a time", severity="warning", markup=False)
        return True

    def _show(self, process: CommandProcess) -> None:
        from tui.command_screen import CommandScreen

        def closed(chosen: tuple[Path, Location] | None) -> None:
            if process.finished:
                self._commands.remove(process)
            self._open_chosen(chosen)

        self.push_screen(CommandScreen(process), closed)

    def _command_changed(self, process: CommandProcess) -> None:
        """Show what is new of a command: on its screen, or that it has ended."""
        from tui.command_process import SEARCH
        from tui.command_screen import CommandScreen

        if not self.screen_stack:  # the browser ends
            return
        screen, slot = self.screen, process.command.slot
        if isinstance(screen, CommandScreen) and screen.process is process:
            screen.refresh_soon()
        elif not (slot == SEARCH and self.search_changed(process)) and process.finished and slot != "diff":
            self._report_end(process)
        if process.finished and slot == "diff":  # only the screen that started it shows it
            self._commands.remove(process)
        if process.finished and _written(process) == self.session.final_path.resolve():
            self.action_reload()

    def _report_end(self, process: CommandProcess) -> None:
        from tui.command_process import SEARCH
        from tui.command_screen import result_of

        command = process.command
        is_here = process.belongs_to(self.session.final_path.resolve())
        name = command.kind if is_here else f"{command.kind} of {one_line(process.subject.name)}"
        shows = "its Trials screen" if command.slot == SEARCH else "its key"
        where = "" if is_here else " there"
        self.notify(f"{name}: {result_of(process)[0]}; {shows} shows it{where}", timeout=10, markup=False)

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
