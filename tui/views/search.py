"""The Search screen: full-text search, with the hits listed as they are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.timer import Timer

from dynadiag.explanation.formatting import count
from tui.key_bindings import footer_key
from tui.location import Location
from tui.recording_search import MAX_HITS, RecordingSearch
from tui.search_hits import Hit, HitGroup, group_hits
from tui.styled_text import Line, line, one_line, printable_code
from tui.text_match import TextMatcher
from tui.views.listing import ListingView
from tui.widgets.prompt import Prompt
from tui.widgets.table import Column, Row

_POLL_SECONDS = 0.15  # seconds between two updates of the list
_CONTEXT_LINES = 12  # lines shown before and after a hit


class SearchView(ListingView):
    """One search at a time. It continues while other screens are shown."""

    DETAIL: ClassVar[str] = "context"
    NOTHING: ClassVar[str] = "searching ..."
    WRAP: ClassVar[bool] = False
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("kind"),
        Column("compile", max_width=8),
        Column("where", max_width=36, is_path=True),
        Column("hits", numeric=True),
        Column("text", max_width=240, is_name=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("x", "stop", "stop", "everywhere.stop", "stop the search"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.search: RecordingSearch | None = None
        self._previous_hits: Sequence[Hit] = ()  # the hits of the search before the recording grew
        self._listed_hits: Sequence[Hit] = ()  # the hits in the table
        self._groups: Sequence[HitGroup] = ()  # the same, as they are listed
        self._poll_timer: Timer | None = None

    def on_mount(self) -> None:
        self._show_status()

    def on_unmount(self) -> None:
        if self.search is not None:
            self.search.stop()

    # The search

    def offers(self, action: str) -> bool:
        """Whether a key does something now: a search of the recording needs no rows, and only one that runs stops."""
        if action == "stop":
            return self.search is not None and not self.search.finished
        return action == "app.search" or super().offers(action)

    async def ask_search(self) -> bool:
        await self.browser.query_one(Prompt).ask(
            "search everywhere: ", self.search.pattern if self.search else "", self.begin
        )
        return True

    async def screen_shown(self) -> None:
        if self.search is None:
            await self.ask_search()

    def begin(self, pattern: str) -> None:
        """Search for another text. An empty text keeps the hits."""
        self.table.focus()
        if pattern.strip():
            self._start(pattern, ())

    def _start(self, pattern: str, before: Sequence[Hit]) -> None:
        if self.search is not None:
            self.search.stop()
        self._previous_hits = before
        self._list_hits(before)
        hunt = self.search = RecordingSearch(self.session, pattern)
        self.table.matcher = TextMatcher(pattern)
        self.run_worker(hunt.run, thread=True, group="hunt")
        if self._poll_timer is None:
            self._poll_timer = self.set_interval(_POLL_SECONDS, self._poll)
        self._poll()
        self.refresh_bindings()

    def load(self) -> None:
        """Search again if the recording has grown or is another one.

        The old hits of a recording that has grown stay in the list until as many are found again.
        """
        if self.search is not None and self.search.session is not self.session:
            grown = self.search.session.path == self.session.path
            self._start(self.search.pattern, self._listed_hits if grown else ())

    @property
    def busy(self) -> bool:
        return super().busy or self._poll_timer is not None

    def action_stop(self) -> None:
        if self.search is None or self.search.finished:
            self.notify("no search is running")
        else:
            self.search.stop()

    def _poll(self) -> None:
        hunt = self.search
        if hunt is None:
            return
        over = hunt.finished  # read this first, so that the last hits are shown too
        found = self._previous_hits
        if over or len(hunt.hits) >= len(found):
            found, self._previous_hits = hunt.hits[:], ()
        if over or len(found) != len(self._listed_hits):
            self._list_hits(found)
        self._show_status()
        if over and self._poll_timer is not None:
            self._poll_timer.stop()
            self._poll_timer = None
            self.refresh_bindings()
            if hunt.error is not None:
                self.browser.report_problem(hunt.error)

    def _list_hits(self, found: Sequence[Hit]) -> None:
        """Show hits in groups, and keep the cursor on its group, if it was moved there: the first hit may sink."""
        moved = self.table.cursor > 0
        under = self._group(self.table.key or 0) if moved else None
        self._listed_hits = found
        self._groups = group_hits(found)
        self._show(self.rows())
        if under is not None and (kept := next((one for one in self._groups if one.hits[0] == under.hits[0]), None)):
            self.table.go_to_key(kept.first)
        elif not moved and self._groups:
            self.table.move_to(0)

    def _show_status(self) -> None:
        """Show the progress of the search above the list."""
        hunt = self.search
        if hunt is None:
            everything = "compiles, breaks, recompiles, guards, kernels, source, graphs, generated code, events"
            self.details.show_note(line((f"press / to search for a text in {everything}", "dim")))
            return
        title = f"{self.TITLE}: {one_line(hunt.pattern)} · {self._progress(hunt)}"
        self.table.border_title = title
        self.table.border_subtitle = count(len(self._listed_hits), "hit")
        self.show_status(title, "")
        if hunt.finished and not hunt.hits:
            self.details.show_note(line((hunt.error or f"not found: {hunt.pattern}", "dim")))

    def _progress(self, hunt: RecordingSearch) -> str:
        megabytes = f"{hunt.bytes_searched / 1e6:,.0f} of {self.session.recording.log_size / 1e6:,.0f} MB of log"
        more = f" · of {', '.join(hunt.truncated_kinds)} the first {MAX_HITS}" if hunt.truncated_kinds else ""
        if not hunt.finished:
            return f"{megabytes if hunt.phase == 'log' else hunt.phase} · x stops{more}"
        if hunt.error is not None:
            return f"ended by an error: {hunt.error}"
        return f"stopped at {megabytes}{more}" if hunt.stopped else f"all searched{more}"

    # Hits

    def rows(self) -> Sequence[Row]:
        return [_row(group) for group in self._groups]

    def _group(self, key: int | str) -> HitGroup | None:
        return next((group for group in self._groups if group.first == key), None)

    def detail(self, key: int | str) -> Sequence[Line]:
        group = self._group(key)
        if group is None:
            return []
        hit = group.hits[0]
        several = [
            line((f"{each.compile_id:<6} ", "dim"), f"{each.where:<28} ", (each.text, "dim"), to=each.target)
            for each in group.hits[:MAX_HITS]
            if len(group.hits) > 1
        ]
        head = line((group.kind, "key"), f"  {group.where}", (f"  compile {', '.join(group.compile_ids)}", "dim"))
        if several and group.kind == "event":
            return [head, *several]
        context = self._context_lines(hit.target) if hit.target.line else [line(hit.text)]
        return [head, *several, Line(), *context]

    def _context_lines(self, target: Location) -> list[Line]:
        kind, _, name = (target.document or "").partition(":")
        text = self.session.recording.source(name) if kind == "source" else self.session.recording.payload(int(name))
        lines = (text or "").split("\n")
        here = (target.line or 1) - 1
        first = max(0, here - _CONTEXT_LINES)
        return [
            line(
                (f"{number + 1:>6} ", "gutter"),
                (printable_code(lines[number][:2000]), "strong" if number == here else ""),
            )
            for number in range(first, min(len(lines), here + _CONTEXT_LINES + 1))
        ]

    def target_of(self, key: int | str) -> Location | None:
        group = self._group(key)
        return group.hits[0].target if group else None


def _row(group: HitGroup) -> Row:
    ids = group.compile_ids
    number = f"{ids[0]}{f' +{len(ids) - 1}' if len(ids) > 1 else ''}"
    return Row((group.kind, number, group.where, f"{len(group.hits):,}", group.text), group.first)
