"""The Trials screen: the search of a recording, its verdict and its trials, also while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType

from dynadiag.errors import DynadiagError
from dynadiag.explanation.search import RecordedSearch, SearchVerdict, read_search
from dynadiag.recording.records import Trial
from tui.command_process import SEARCH, CommandProcess
from tui.command_screen import state_line
from tui.highlighting import Highlighter
from tui.key_bindings import footer_key
from tui.location import FILE_VIEW
from tui.search_summary import deciding_trials, search_lines, trial_lines, trial_row
from tui.session import Session
from tui.styled_text import Line, line
from tui.views.listing import ListingView
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Column

_TICK_SECONDS = 1.0
_MAX_REPRO_BYTES = 1 << 20  # bytes shown of a repro


class _Content(NamedTuple):
    """What the recording has."""

    search: RecordedSearch | None
    trials: tuple[Trial, ...]
    deciding: Sequence[int]  # the trials that the verdict rests on


class TrialsView(ListingView):
    """The search in the recording. Above it stands the one that was started on it, which writes another recording."""

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
        footer_key("B", "app.search_program('bisect')", "bisect", "search.bisect", "find the part at fault (bisect)"),
        footer_key("M", "app.search_program('minify')", "minify", "search.minify", "write a small program (minify)"),
        footer_key("x", "stop", "stop", "search.stop", "stop the search; its trials are kept"),
        footer_key("c", "app.resume_search", "resume", "search.resume", "resume a search that was stopped"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._content: _Content | None = None

    def compose(self) -> ComposeResult:
        yield StyledLines([line(("reading ...", "dim"))], id="trials-search", wrap=True)
        yield from super().compose()

    @property
    def head(self) -> StyledLines:
        return self.query_one("#trials-search", StyledLines)

    @property
    def search(self) -> CommandProcess | None:
        """The search that was started on this recording, or that goes on with it."""
        return self.browser.commands.find(SEARCH, self.session.final_path)

    def on_mount(self) -> None:
        self.head.border_title = "Search"
        self.set_interval(_TICK_SECONDS, self._show_head)

    def offers(self, action: str) -> bool:
        """Whether a key does something now: what runs can be stopped, and what was stopped resumed."""
        known = self._content.search if self._content is not None else None
        is_running = self.search is not None and self.search.running
        if action == "stop":
            return is_running
        if action == "app.resume_search":
            return not is_running and known is not None and not known.is_finished
        return super().offers(action)

    def action_stop(self) -> None:
        self.browser.stop_search()
        self._show_head()

    # Content

    def load(self) -> None:
        session = self.session

        def read() -> _Content:
            trials, search = session.recording.trials(), read_search(session.recording, running=session.live)
            verdict = search.verdict if search is not None else SearchVerdict()
            return _Content(search, trials, deciding_trials(trials, verdict))

        self.fetch("rows", read, self._show_content)

    def _show_content(self, content: _Content) -> None:
        is_first = self._content is None
        before = self._content.search if self._content is not None else None
        at_end = self.table.cursor >= self.table.count - 1
        self._content = content
        self._show([trial_row(item, content.deciding) for item in content.trials])
        self._show_head()
        if content.search is not None and content.search.running and at_end:
            self.table.move_to(self.table.count - 1)
        elif before is not None and before.running and self.is_current and any(each.target for each in self.head.lines):
            self.head.focus()  # the search has ended: the cursor goes to what it has found
            self._to_first_target()
        elif is_first and self.head.has_focus:  # a key was faster than the recording
            self._to_first_target()

    def _show_head(self) -> None:
        """Show the search, and for how long one has run, also while a trial takes long."""
        content, search, session = self._content, self.search, self.session
        if content is None or not self.is_open:
            return
        known = search_lines(content.search, session.run.cwd, session.recording.source, content.deciding)
        started = [state_line(search, (f"  {search.command.kind}: B shows it", "dim"))] if search is not None else []
        self.head.show([*started, *known], keep=True)
        self.refresh_bindings()

    def show_problem(self, reason: str) -> None:
        self.head.show([line(("whether this recording has a search could not be read", "dim"))])
        super().show_problem(reason)

    def detail(self, key: int | str) -> Sequence[Line]:
        content = self._content
        trial = next((item for item in content.trials if item.index == key), None) if content is not None else None
        return trial_lines(trial, content.deciding) if content is not None and trial is not None else []

    def cursor_moved(self, lines: Lines) -> None:
        repro = self._repro()
        if lines is self.head and repro is not None:
            self.fetch("detail", lambda: _repro_lines(self.session, repro), self.details.show)
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
        else:
            self.browser.go_to(self.head.target)


def _repro_lines(session: Session, name: str) -> list[Line]:
    """Return the lines of a repro from its file, or from the recording if the file is gone.

    Raises `DynadiagError` if it is in neither.
    """
    path = Path(name)
    recorded = None if path.is_file() else session.recording.source(name)
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
