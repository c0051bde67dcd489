"""Searches: the trials of a bisection or a minification, started and stopped from here and shown while they run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer

from dynadiag.errors import DynadiagError
from dynadiag.recording.records import Trial
from tui.confirm import Confirm
from tui.lexing import Highlighter
from tui.roles import Line, line, one_line
from tui.searching import Progress, Search, plan_for
from tui.searchlines import search_lines
from tui.session import Session
from tui.views.listing import ListingView
from tui.widgets.lines import Lines
from tui.widgets.styled import StyledLines
from tui.widgets.table import Column, Row

__all__ = ["TrialsView"]

_OFTEN = 0.05  # seconds between two drawings of a search that runs
_ROLES = {"pass": "good", "same": "error", "fail": "error", "different": "break", "timeout": "break", "invalid": "dim"}


class TrialsView(ListingView):
    """The search that was started here; before there is one, the search that is recorded."""

    NAME: ClassVar[str] = "trials"
    TITLE: ClassVar[str] = "Trials"
    NOTHING: ClassVar[str] = "no trial yet"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("#", number=True),
        Column("ended", widest=12),
        Column("seconds", number=True),
        Column("process", number=True),
        Column("candidate", widest=200),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("B", "start('bisect')", "bisect", id="search.bisect"),
        Binding("M", "start('minify')", "minify", id="search.minify"),
        Binding("x", "stop", "stop", show=False, id="search.stop"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.search: Search | None = None
        self._found: Session | None = None  # the recording of the search that was started here
        self._told = False  # whether its end was told
        self._due: Timer | None = None  # until what has changed is shown
        self._trials: Sequence[Trial] = ()

    def compose(self) -> ComposeResult:
        yield StyledLines(search_lines(None, 0), id="trials-search")
        yield from super().compose()

    @property
    def head(self) -> StyledLines:
        return self.query_one("#trials-search", StyledLines)

    def on_mount(self) -> None:
        self.head.border_title = "Search"

    def on_unmount(self) -> None:
        if self.search is not None:
            self.search.stop()
        self._close_found()

    def _close_found(self) -> None:
        found, self._found = self._found, None
        if found is not None:
            found.close()

    # Starting and stopping

    def action_start(self, kind: str) -> None:
        if self.search is not None and self.search.running:
            self.notify("a search is running: x stops it", severity="warning")
            return
        try:
            plan = plan_for(kind, self.session.run)
        except DynadiagError as error:
            self.browser.say_problem(str(error))
            return
        lines = [
            line((f"$ {plan.text}", "strong")),
            line((f"in {plan.folder}", "dim")),
            Line(),
            line("This runs the program that the recording names, many times."),
            line("What it does outside (uploads, files it writes) happens each time."),
        ]
        search = Search(plan, self._soon)
        self.app.push_screen(Confirm(lines), lambda yes: self._start(search) if yes else None)

    def _start(self, search: Search) -> None:
        self.search, self._told = search, False
        self._close_found()
        self.run_worker(search.run(), group="search", exclusive=True, exit_on_error=False)
        self._changed()

    def action_stop(self) -> None:
        if self.search is None or not self.search.running:
            self.notify("no search is running")
        else:
            self.search.stop()

    def _soon(self) -> None:
        """Trials may end faster than anybody reads: not each is drawn."""
        if self._due is None:
            self._due = self.set_timer(_OFTEN, self._changed)

    @property
    def busy(self) -> bool:
        return super().busy or self._due is not None

    def _changed(self) -> None:
        self._due = None
        search = self.search
        if search is not None and search.over and not self._told:
            self._told = True
            self._tell(search)
        if search is not None and search.recording is not None and self._found is None:
            self.fetch("found", lambda: self._opened(search.recording), self._take)
        self.load()

    def _tell(self, search: Search) -> None:
        """The search has ended: the cursor goes to what it found, one enter away from it."""
        lines = search_lines(search, len(search.trials))
        self.head.show(lines)
        found = next((number for number, item in enumerate(lines) if item.target), None)
        if self.browser.current is not self:
            self.notify(f"the search has ended: {lines[2].text.strip()}" if len(lines) > 2 else "", markup=False)
        elif found is not None:
            self.head.focus()
            self.head.go(found)

    def _opened(self, path: Path | None) -> Session | None:
        return Session.open(path) if path is not None else None

    def _take(self, session: Session | None) -> None:
        self._found = session
        self.load()

    # Showing

    def rows(self) -> Sequence[Row]:
        if self.search is not None and self._found is None:
            return [_running_row(trial) for trial in list(self.search.trials)]
        self._trials = (self._found or self.session).trials()
        return [_row(item) for item in self._trials]

    def _show(self, rows: Sequence[Row]) -> None:
        at_end = self.table.cursor >= self.table.count - 1
        super()._show(rows)
        self.head.show(search_lines(self.search, len(rows)), keep=True)
        if self.search is not None and self.search.running and at_end:
            self.table.go(len(rows) - 1)

    def detail(self, key: int | str) -> Sequence[Line]:
        if self.search is not None and self._found is None:
            return [line(("the whole of a trial is shown once the search has ended", "dim"))]
        trial = next((item for item in self._trials if item.index == key), None)
        if trial is None:
            return []
        return [
            line((f"trial {trial.index + 1}", "title"), f"  {_status(trial)}, {trial.seconds:.1f} s"),
            Line(),
            line(("candidate", "strong")),
            *_pretty(trial.candidate),
            Line(),
            line(("outcome", "strong")),
            *_pretty(trial.outcome),
        ]

    def moved(self, lines: Lines) -> None:
        if lines is self.head and lines.has_focus:
            target = self.head.lines[lines.cursor].target if lines.count else None
            if target is not None and target.view == "file" and target.document is not None:
                path = Path(target.document)
                self.fetch("detail", lambda: _text_of(path), self.details.show)
            return
        super().moved(lines)

    def chosen(self, lines: Lines) -> None:
        if lines is not self.head:
            super().chosen(lines)
            return
        target = self.head.lines[lines.cursor].target
        if target is not None and target.view == "file" and target.document is not None:
            self.browser.edit_file(Path(target.document))
        elif target is not None:
            self.browser.goto(target)


def _text_of(path: Path) -> list[Line]:
    """The repro, as it was written. Raises `DynadiagError` where it is gone."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise DynadiagError(f"{path}: {error.strerror}") from error
    coloured = Highlighter(lines, ((0, "python"),))
    return [line(*coloured.line(number)) for number in range(len(lines))]


def _running_row(item: Progress) -> Row:
    cells = (str(item.number), item.status, f"{item.seconds:.1f}", "-", one_line(item.label))
    return Row(cells, item.number, _ROLES.get(item.status, ""))


def _row(item: Trial) -> Row:
    status = _status(item)
    cells = (str(item.index + 1), status, f"{item.seconds:.1f}", str(item.pid or "-"), _short(item.candidate))
    return Row(cells, item.index, _ROLES.get(status, ""))


def _status(item: Trial) -> str:
    found = _json(item.outcome)
    status = found.get("status") if isinstance(found, dict) else found
    return one_line(str(status))[:40] or "?"


def _short(candidate: str) -> str:
    """A candidate in a few words: the rung, and what of it is switched."""
    head, brace, rest = candidate.partition("{")
    found = _json(brace + rest) if brace else candidate
    if not isinstance(found, dict):
        return one_line(candidate)
    words = [head.strip(), str(found.get("rung") or "as written")]
    words += [_switch(item) for item in found.get("switches") or () if isinstance(item, dict)]
    words += [
        "with accuracy" if found.get("accuracy") else "",
        "without caches" if found.get("caches") is False else "",
    ]
    task = found.get("task")
    words += [task if isinstance(task, str) else json.dumps(task)[:80] if task else ""]
    return one_line(", ".join(word for word in words if word))


def _switch(item: dict[str, Any]) -> str:
    """Which parts of a class are left on or off: each is named by the end of its hash."""
    suffixes = item.get("suffixes")
    ends = "/".join(str(one) for one in suffixes[:6]) if isinstance(suffixes, list) else ""
    return f"{item.get('group')} {'only' if item.get('keep') else 'without'} {ends or 'all'}"


def _pretty(text: str) -> list[Line]:
    found = _json(text)
    made = found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False)
    return [line(f"  {part}") for part in made.replace("\\n", "\n    ").split("\n")]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
