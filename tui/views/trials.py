"""The Trials screen: start, watch and stop a bisection or a minification, and see its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer

from dynadiag.errors import DynadiagError
from dynadiag.recording.records import Trial
from tui.command_process import SEARCH, Command, CommandProcess, TrialProgress, program_command
from tui.confirm import RUNS_OFTEN, Choice, command_choice
from tui.highlighting import Highlighter
from tui.location import FILE_VIEW
from tui.search_result import SearchResult, read_search_result
from tui.search_summary import search_lines
from tui.session import Session
from tui.styled_text import Line, line, one_line
from tui.trial_rows import deciding_trials, running_row, trial_lines, trial_row
from tui.views.listing import ListingView
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Column

_REFRESH_SECONDS = 0.05  # seconds between two updates while a search runs
_TICK_SECONDS = 1.0
_MAX_REPRO_BYTES = 1 << 20  # bytes shown of a repro
_ACCURACY = "--accuracy"


@dataclass(frozen=True, slots=True)
class _Content:
    """What the screen shows."""

    session: Session
    recorded: SearchResult | None  # the search in the recording
    search: CommandProcess | None  # the search that was started on it
    trials: tuple[Trial, ...]  # the recorded trials: of the search, or of the one that it goes on with
    new: Sequence[TrialProgress]  # the trials of the search that are not recorded yet
    deciding: Sequence[int]  # the trials that the verdict rests on
    path: Path | None = None  # the recording of the search that was started


class TrialsView(ListingView):
    """The search that was started on the recording; without one, the search in it. The application runs it."""

    NAME: ClassVar[str] = "trials"
    TITLE: ClassVar[str] = "Trials"
    NOTHING: ClassVar[str] = "no trial yet"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("#", numeric=True),
        Column("decides"),
        Column("ended", max_width=12),
        Column("seconds", numeric=True),
        Column("process", numeric=True, spare=1),
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
        Binding("x", "stop", "stop", id="search.stop", tooltip="stop the search; its trials are kept"),
        Binding("c", "resume", "resume", id="search.resume", tooltip="resume a search that was stopped"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._content: _Content | None = None
        self._refresh_timer: Timer | None = None  # the next update
        self._pending_kind = ""  # the search to start once the recording is read

    def compose(self) -> ComposeResult:
        yield StyledLines(search_lines(None, 0), id="trials-search", wrap=True)
        yield from super().compose()

    @property
    def head(self) -> StyledLines:
        """The summary of the search, above the table."""
        return self.query_one("#trials-search", StyledLines)

    @property
    def search(self) -> CommandProcess | None:
        """The search that was started on this recording."""
        return self.browser.commands.find(SEARCH, self.session.final_path)

    def on_mount(self) -> None:
        self.head.border_title = "Search"
        self.set_interval(_TICK_SECONDS, self._tick)

    def offers(self, action: str) -> bool:
        """Whether a key does something now: what runs can be stopped, and what was stopped resumed."""
        is_running = self.browser.commands.running(SEARCH) is not None
        if action == "stop":
            return is_running and self.search is not None and self.search.running
        if action == "resume":
            return not is_running and self._resumable() is not None
        return super().offers(action) and not (is_running and action.startswith("start"))

    # Start and stop

    def action_start(self, kind: str) -> None:
        """Ask the user, then start a search. If the program succeeded, propose `--accuracy` first.

        That is done as soon as it is known whether the recording is that of a search.
        """
        if not self._is_read:
            self._pending_kind = kind
        elif self._may_start():
            self.browser.ask_to_run(lambda: [*map(_question, self._start_commands(kind))])

    def action_resume(self) -> None:
        """Ask the user, then resume the search that was stopped."""
        if not self._may_start():
            return
        known = self._resumable()
        if known is None:
            self.notify("there is no stopped search: B and M start one", severity="warning")
            return
        kind, options, recording = known
        self.browser.ask_to_run(lambda: [_question(program_command(kind, self.session.run, options, recording))])

    def _start_commands(self, kind: str) -> tuple[Command, ...]:
        run, known = self.session.run, self._recorded
        if known is not None:
            return (program_command(kind, run, known.options),)
        plain, compared = program_command(kind, run), program_command(kind, run, (_ACCURACY,))
        return (compared, plain) if run.exit_code == 0 else (plain, compared)

    def _resumable(self) -> tuple[str, tuple[str, ...], Path] | None:
        """Return kind, options and recording of a search that was stopped."""
        search, known = self.search, self._recorded
        if search is not None:
            path = search.recording
            return (search.command.kind, search.command.options, path) if search.stopped and path is not None else None
        if known is None or known.is_finished or known.kind is None:
            return None
        return known.kind, known.options, self.session.final_path

    def _may_start(self) -> bool:
        """Whether no search runs. If one does, the user is told."""
        running = self.browser.commands.running(SEARCH)
        if running is not None:
            told = "a search is running: x stops it first" if running is self.search else _runs_elsewhere(running)
            self.notify(told, severity="warning", markup=False)
        return running is None

    def action_stop(self) -> None:
        """Stop the search. Its trials are kept."""
        search, running = self.search, self.browser.commands.running(SEARCH)
        if search is not None and search.running:
            search.stop()
            self._show_head()
        else:
            self.notify(_runs_elsewhere(running) if running is not None else "no search is running", markup=False)

    # Updates

    def search_changed(self, search: CommandProcess) -> bool:
        """Update the screen soon, if it shows this search. Return whether the user sees it."""
        shown = self._content.search if self._content is not None else None
        if not self.is_open or search not in (self.search, shown):
            return False
        is_own = search is self.search  # and not one that has gone on with this recording, and has ended
        if is_own and search.finished and self.is_current:
            self._show_end()
        if self._refresh_timer is None:  # trials may end faster than anybody can read
            self._refresh_timer = self.set_timer(_REFRESH_SECONDS, self._refresh)
        return is_own and self.is_current and len(self.app.screen_stack) == 1

    def _show_end(self) -> None:
        """Move the cursor to what the search has found."""
        self._show_head()
        if any(item.target for item in self.head.lines):
            self.head.focus()
            self._to_first_target()

    def _refresh(self) -> None:
        self._refresh_timer = None
        self.load_if_open()

    def _tick(self) -> None:
        """Update the elapsed time, also while a trial takes long."""
        search = self.search
        if self.is_open and self._is_read and search is not None and not search.finished:
            self._show_head()

    @property
    def busy(self) -> bool:
        return super().busy or self._refresh_timer is not None

    # Content

    @property
    def _is_read(self) -> bool:
        """Whether what was read is of the open recording."""
        return self._content is not None and self._content.session is self.session

    @property
    def _recorded(self) -> SearchResult | None:
        """The search in the recording, once that was read."""
        return self._content.recorded if self._content is not None and self._is_read else None

    def load(self) -> None:
        session, search, known = self.session, self.search, self._content
        self.fetch("rows", lambda: _read_content(session, search, known), self._show_content)

    def _show_content(self, content: _Content) -> None:
        at_end = self.table.cursor >= self.table.count - 1
        self._content = content
        rows = [*(trial_row(item, content.deciding) for item in content.trials), *map(running_row, content.new)]
        self._show(rows)
        self._show_head()
        self.refresh_bindings()
        if content.search is not None and not content.search.finished and at_end:
            self.table.move_to(len(rows) - 1)
        kind, self._pending_kind = self._pending_kind, ""
        if kind:
            self.action_start(kind)

    def _show_head(self) -> None:
        content, search, session = self._content, self.search, self.session
        trials, deciding = (len(content.trials), content.deciding) if content is not None else (0, ())
        self.head.show(
            search_lines(search, trials, self._recorded, session.run.cwd, session.recording.source, deciding), keep=True
        )

    def show_problem(self, reason: str) -> None:
        self.head.show([line(("whether this recording has a search could not be read", "dim"))])
        super().show_problem(reason)

    def detail(self, key: int | str) -> Sequence[Line]:
        content = self._content
        trial = next((item for item in content.trials if item.index == key), None) if content is not None else None
        if content is not None and trial is not None:
            return trial_lines(trial, content.deciding)
        is_new = content is not None and bool(content.new)
        return [line(("the details of a trial are available after the search has ended", "dim"))] if is_new else []

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
        recorded = None if path.is_file() else self._recorded_text(name)
        lines = (_read(path) if recorded is None else recorded).split("\n")
        coloured = Highlighter(lines, ((0, "python"),))
        return [line(*coloured.line(number)) for number in range(len(lines))]

    def _recorded_text(self, name: str) -> str | None:
        search = self._content.search if self._content is not None else None
        if search is None or search.recording is None:
            return self.session.recording.source(name)
        with Session.open(search.recording) as recording:
            return recording.recording.source(name)


def _read_content(session: Session, search: CommandProcess | None, known: _Content | None) -> _Content:
    """Read what the screen shows. What is known of the same search is not read again for each new trial."""
    is_known = known is not None and known.session is session
    recorded = known.recorded if known is not None and is_known else read_search_result(session)
    if search is None:
        trials, verdict = session.recording.trials(), recorded.verdict if recorded is not None else {}
        return _Content(session, recorded, None, trials, (), deciding_trials(trials, verdict))
    path = search.recording or search.command.resume
    new = () if search.recording is not None else tuple(search.trials)
    if known is not None and known.search is search and known.path == path and bool(known.new) == bool(new):
        trials = known.trials
    else:
        trials = _trials_in(path)
    return _Content(session, recorded, search, trials, new, deciding_trials(trials, search.verdict), path)


def _trials_in(path: Path | None) -> tuple[Trial, ...]:
    if path is None:
        return ()
    with Session.open(path) as recording:
        return recording.recording.trials()


def _runs_elsewhere(search: CommandProcess) -> str:
    return f"a search runs on {one_line(search.subject.name)}, one at a time: x on its Trials screen stops it"


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
