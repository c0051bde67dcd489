"""The Trials screen: start, watch and stop a bisection or a minification, and see its trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer

from dynadiag.errors import DynadiagError
from dynadiag.recording.records import Trial
from tui.command_process import Command, CommandProcess, program_command
from tui.confirm import RUNS_OFTEN, Choice, Confirm, command_choice
from tui.highlighting import Highlighter
from tui.location import FILE_VIEW
from tui.search_result import SearchResult, read_search_result
from tui.search_summary import search_lines
from tui.session import JOURNAL_SUFFIX, Session
from tui.styled_text import Line, line
from tui.trial_rows import deciding_trials, running_row, trial_lines, trial_row
from tui.views.listing import ListingView
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Column, Row

__all__ = ["TrialsView"]

_REFRESH_SECONDS = 0.05  # seconds between two updates while a search runs
_TICK_SECONDS = 1.0
_MAX_REPRO_BYTES = 1 << 20  # bytes shown of a repro
_ACCURACY = "--accuracy"


class TrialsView(ListingView):
    """The search that was started here; without one, the search in the recording."""

    NAME: ClassVar[str] = "trials"
    TITLE: ClassVar[str] = "Trials"
    NOTHING: ClassVar[str] = "no trial yet"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("#", numeric=True),
        Column("decides"),
        Column("ended", max_width=12),
        Column("seconds", numeric=True),
        Column("process", numeric=True, spare=True),
        Column("tried", max_width=200),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "B",
            "start('bisect')",
            "bisect",
            id="search.bisect",
            tooltip="bisect the program: find the part of the compiler at fault",
        ),
        Binding(
            "M",
            "start('minify')",
            "minify",
            id="search.minify",
            tooltip="minify the program: write a small program with the same failure",
        ),
        Binding(
            "x",
            "stop",
            "stop",
            show=False,
            id="search.stop",
            tooltip="stop the search; its trials are kept",
        ),
        Binding("c", "resume", "resume a search that was stopped", show=False, id="search.resume"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.search: CommandProcess | None = None
        self._recorded_result: SearchResult | None = None  # the search in the recording
        self._finished_session: Session | None = None  # the recording of the search started here
        self._end_reported = False  # whether its end was reported
        self._refresh_timer: Timer | None = None  # the next update
        self._is_read = False
        self._pending_kind = ""  # the search to start once the recording is read
        self._trials: Sequence[Trial] = ()
        self._deciding: Sequence[int] = ()  # the trials that the verdict rests on
        self._resumed_trials: Sequence[Trial] = ()  # trials of the resumed search

    def compose(self) -> ComposeResult:
        yield StyledLines(search_lines(None, 0), id="trials-search", wrap=True)
        yield from super().compose()

    @property
    def head(self) -> StyledLines:
        """The summary of the search, above the table."""
        return self.query_one("#trials-search", StyledLines)

    def on_mount(self) -> None:
        self.head.border_title = "Search"

    async def on_unmount(self) -> None:
        if self.search is not None:
            await self.search.shut_down()
        self._close_finished()

    def _close_finished(self) -> None:
        found, self._finished_session = self._finished_session, None
        if found is not None:
            found.close()

    # Start and stop

    def start_when_read(self, kind: str) -> None:
        """Start a search as soon as it is known whether the recording is that of a search."""
        if self._is_read:
            self.action_start(kind)
        else:
            self._pending_kind = kind

    def action_start(self, kind: str) -> None:
        """Ask the user, then start a search. If the program succeeded, propose `--accuracy` first."""
        self._confirm(lambda: self._start_commands(kind))

    def action_resume(self) -> None:
        """Ask the user, then resume the search that was stopped."""
        if self._resumable() is None:
            self.notify("there is no stopped search: B and M start one", severity="warning")
        else:
            self._confirm(self._resume_commands)

    def _start_commands(self, kind: str) -> tuple[Command, ...]:
        run, known = self.session.run, self._recorded_result
        if known is not None:
            return (program_command(kind, run, known.options),)
        plain, compared = program_command(kind, run), program_command(kind, run, (_ACCURACY,))
        return (compared, plain) if run.exit_code == 0 else (plain, compared)

    def _resume_commands(self) -> tuple[Command, ...]:
        known = self._resumable()
        if known is None:
            return ()
        kind, options, recording = known
        return (program_command(kind, self.session.run, options, recording),)

    def _resumable(self) -> tuple[str, tuple[str, ...], Path] | None:
        """Return kind, options and recording of a search that was stopped."""
        search, known = self.search, self._recorded_result
        if search is not None:
            path = search.recording
            return (search.command.kind, search.command.options, path) if search.stopped and path is not None else None
        if known is None or known.is_finished or known.kind is None:
            return None
        return known.kind, known.options, Path(str(self.session.path).removesuffix(JOURNAL_SUFFIX))

    def _confirm(self, make: Callable[[], tuple[Command, ...]]) -> None:
        if self.search is not None and self.search.running:
            self.notify("a search is running: x stops it first", severity="warning")
            return
        try:
            plans = make()
        except DynadiagError as error:
            self.browser.report_problem(str(error))
            return
        self.app.push_screen(Confirm(*map(_question, plans)), self._confirmed)

    def _confirmed(self, plan: Command | None) -> None:
        if plan is not None:
            self._start(CommandProcess(plan, self._refresh_soon))

    def _start(self, search: CommandProcess) -> None:
        self._resumed_trials = self._trials if search.command.resume is not None else ()
        self.search, self._end_reported = search, False
        self._close_finished()
        self._tick(search)
        self.run_worker(search.run(), group="search", exclusive=True, exit_on_error=False)
        self._refresh()

    def _tick(self, search: CommandProcess) -> None:
        """Update the elapsed time, also while a trial takes long."""
        if self.is_open and search is self.search and not search.finished:
            self.head.show(self._head(len(search.trials)), keep=True)
            self.set_timer(_TICK_SECONDS, lambda: self._tick(search))

    def action_stop(self) -> None:
        """Stop the search. Its trials are kept."""
        if self.search is None or not self.search.running:
            self.notify("no search is running")
        else:
            self.search.stop()

    def _refresh_soon(self) -> None:
        """Update the screen soon. Trials may end faster than anybody can read."""
        if self._refresh_timer is None:
            self._refresh_timer = self.set_timer(_REFRESH_SECONDS, self._refresh)

    @property
    def busy(self) -> bool:
        return super().busy or self._refresh_timer is not None

    def _refresh(self) -> None:
        self._refresh_timer = None
        if not self.is_open:
            return
        search = self.search
        if search is not None and search.finished and not self._end_reported:
            self._end_reported = True
            self._report_end(search)
        if search is not None and search.recording is not None and self._finished_session is None:
            self.fetch("found", lambda: self._open_finished(search.recording), self._use_finished)
            if search.recording.absolute() == self.session.path.absolute():  # the open recording was resumed
                self.browser.action_reload()
        self.load()

    def _report_end(self, search: CommandProcess) -> None:
        """Report the end of the search, and move the cursor to what it found."""
        lines = self._head(len(search.trials))
        self.head.show(lines)
        found = any(item.target for item in lines)
        if not self.is_current:
            self.notify(f"the search has ended: {lines[0].text.strip()}", markup=False)
        elif found:
            self.head.focus()
            self._to_first_target()

    def _open_finished(self, path: Path | None) -> Session | None:
        return Session.open(path) if path is not None else None

    def _use_finished(self, session: Session | None) -> None:
        self._finished_session = session
        self.load()

    # Display

    def _head(self, trials: int) -> list[Line]:
        return search_lines(
            self.search,
            trials,
            self._recorded_result,
            self.session.run.cwd,
            self.session.recording.source,
            self._deciding,
        )

    def rows(self) -> Sequence[Row]:
        if self.search is not None and self._finished_session is None:
            return [*map(trial_row, self._resumed_trials), *map(running_row, list(self.search.trials))]
        self._trials = (self._finished_session or self.session).trials()
        self._recorded_result = read_search_result(self.session)
        found = self._recorded_result if self.search is None else None
        verdict = found.verdict if found is not None else self.search.verdict if self.search is not None else {}
        self._deciding = deciding_trials(self._trials, verdict)
        return [trial_row(item, self._deciding) for item in self._trials]

    def show_problem(self, reason: str) -> None:
        self.head.show([line(("whether this recording has a search could not be read", "dim"))])
        super().show_problem(reason)

    def _show(self, rows: Sequence[Row]) -> None:
        at_end = self.table.cursor >= self.table.count - 1
        super()._show(rows)
        self.head.show(self._head(len(rows)), keep=True)
        if self.search is not None and self.search.running and at_end:
            self.table.move_to(len(rows) - 1)
        kind, self._pending_kind, self._is_read = self._pending_kind, "", True
        if kind:
            self.action_start(kind)

    def detail(self, key: int | str) -> Sequence[Line]:
        running = self.search is not None and self._finished_session is None
        trial = next((item for item in (self._resumed_trials if running else self._trials) if item.index == key), None)
        if trial is not None:
            return trial_lines(trial, self._deciding)
        return [line(("the details of a trial are available after the search has ended", "dim"))] if running else []

    def cursor_moved(self, lines: Lines) -> None:
        repro = self._repro()
        if lines is self.head and repro is not None:
            self.fetch("detail", lambda: self._text_of(repro), self.details.show)
        elif not (lines is self.table and self.head.has_focus and repro is not None):
            super().cursor_moved(lines)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Show the detail of the focused widget: of the head the repro, of the table the trial."""
        if event.widget is self.head:
            self._to_first_target()
        elif event.widget is self.table:
            super().cursor_moved(self.table)

    def _to_first_target(self) -> None:
        found = next((number for number, item in enumerate(self.head.lines) if item.target), None)
        if found is not None:
            self.head.move_to(found)

    def _repro(self) -> str | None:
        """Return the repro under the cursor of the head."""
        target = self.head.target
        return target.document if target is not None and target.view == FILE_VIEW else None

    def line_chosen(self, lines: Lines) -> None:
        if lines is not self.head:
            super().line_chosen(lines)
            return
        target = self.head.target
        if target is not None:
            self.browser.go_to(target)

    def _text_of(self, name: str) -> list[Line]:
        """Return the lines of a repro from its file, or from the recording if the file is gone.

        Raises `DynadiagError` if it is in neither.
        """
        path = Path(name)
        recorded = None if path.is_file() else (self._finished_session or self.session).recording.source(name)
        lines = (_read(path) if recorded is None else recorded).split("\n")
        coloured = Highlighter(lines, ((0, "python"),))
        return [line(*coloured.line(number)) for number in range(len(lines))]


def _read(path: Path) -> str:
    if path.suffix != ".py" or not path.is_file():
        raise DynadiagError(f"{path}: this repro does not exist any more")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_REPRO_BYTES)
    except OSError as error:
        raise DynadiagError(f"{path}: {error.strerror}") from error


def _question(command: Command) -> Choice[Command]:
    compared = "Each compiled call is compared with its uncompiled self." if _ACCURACY in command.options else ""
    shown = compared or "A failure is what the program shows: an exception, a crash, a hang, an exit code."
    return command_choice(command, shown, RUNS_OFTEN)
