"""The Search screen: full-text search, with the hits listed as they are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.timer import Timer

from dynadiag.errors import DynadiagError
from tui.hits import Hit
from tui.hunt import MOST, Hunt
from tui.location import Location
from tui.roles import Line, line, one_line, shown
from tui.views.listing import ListingView
from tui.widgets.lines import Lines
from tui.widgets.prompt import Prompt
from tui.widgets.table import Column, Row

__all__ = ["SearchView"]

_OFTEN = 0.15  # seconds between two updates of the list
_AROUND = 12  # lines shown before and after a hit


class SearchView(ListingView):
    """One search at a time. It continues while other screens are shown."""

    NAME: ClassVar[str] = "search"
    TITLE: ClassVar[str] = "Search"
    DETAIL: ClassVar[str] = "context"
    NOTHING: ClassVar[str] = "searching ..."
    WRAP: ClassVar[bool] = False
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("kind"),
        Column("compile", widest=8),
        Column("where", widest=36, path=True),
        Column("text", widest=240),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "stop", "stop the search", show=False, id="everywhere.stop"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.hunt: Hunt | None = None
        self._before: Sequence[Hit] = ()  # the hits of the search before the recording grew
        self._listed: Sequence[Hit] = ()  # the hits in the table
        self._looking: Timer | None = None

    def on_mount(self) -> None:
        self._say()

    def on_unmount(self) -> None:
        if self.hunt is not None:
            self.hunt.stop()

    # The search

    async def ask(self) -> bool:
        await self.browser.query_one(Prompt).ask(
            "search everywhere: ", self.hunt.pattern if self.hunt else "", self.begin
        )
        return True

    async def arrived(self) -> None:
        if self.hunt is None:
            await self.ask()

    def begin(self, pattern: str) -> None:
        """Search for another text. An empty text keeps the hits."""
        self.table.focus()
        if pattern.strip():
            self._start(pattern, ())

    def _start(self, pattern: str, before: Sequence[Hit]) -> None:
        if self.hunt is not None:
            self.hunt.stop()
        self._before = before
        self._list(before)
        hunt = self.hunt = Hunt(self.session, pattern)
        self.table.finder = hunt.finder
        self.run_worker(lambda: _hunted(hunt), thread=True, group="hunt")
        if self._looking is None:
            self._looking = self.set_interval(_OFTEN, self._look)
        self._look()

    def load(self) -> None:
        """Search again if the recording has grown or is another one.

        The old hits of a recording that has grown stay in the list until as many are found again.
        """
        if self.hunt is not None and self.hunt.session is not self.session:
            grown = self.hunt.session.path == self.session.path
            self._start(self.hunt.pattern, self._listed if grown else ())

    @property
    def busy(self) -> bool:
        return super().busy or self._looking is not None

    def action_stop(self) -> None:
        """Stop the search."""
        if self.hunt is None or self.hunt.over:
            self.notify("no search is running")
        else:
            self.hunt.stop()

    def _look(self) -> None:
        hunt = self.hunt
        if hunt is None:
            return
        over = hunt.over  # read this first, so that the last hits are shown too
        found = self._before
        if over or len(hunt.hits) >= len(found):
            found, self._before = hunt.hits[:], ()
        if over or len(found) != len(self._listed):
            self._list(found)
        self._say()
        if over and self._looking is not None:
            self._looking.stop()
            self._looking = None
            if hunt.problem is not None:
                self.browser.say_problem(hunt.problem)

    def _list(self, found: Sequence[Hit]) -> None:
        """Show hits, and keep the cursor on its hit."""
        under, self._listed = self._hit_under(), found
        self._show([_row(number, hit) for number, hit in enumerate(found)])
        if under is not None and under in found:
            self.table.go_to_key(found.index(under))

    def _say(self) -> None:
        """Show the progress of the search above the list."""
        hunt = self.hunt
        if hunt is None:
            everything = "compiles, breaks, recompiles, guards, kernels, source, graphs, generated code, events"
            self.details.show([line(("press / to search for a text in", "dim")), line((everything, "dim"))])
            return
        title = f"{self.TITLE}: {one_line(hunt.pattern)} · {self._progress(hunt)}"
        self.table.border_title = title
        self.table.border_subtitle = f"{len(self._listed):,}"
        if self.browser.current is self:
            self.browser.say(title, "")
        if hunt.over and not hunt.hits:
            self.details.show([line((hunt.problem or f"not found: {hunt.pattern}", "dim"))])

    def _progress(self, hunt: Hunt) -> str:
        megabytes = f"{hunt.done / 1e6:,.0f} of {hunt.total / 1e6:,.0f} MB of log"
        more = f" · of {', '.join(hunt.more)} the first {MOST}" if hunt.more else ""
        if not hunt.over:
            return f"{megabytes if hunt.stage == 'log' else hunt.stage} · x stops{more}"
        if hunt.problem is not None:
            return f"ended by an error: {hunt.problem}"
        return f"stopped at {megabytes}{more}" if hunt.stopped else f"all searched{more}"

    # Hits

    def rows(self) -> Sequence[Row]:
        return [_row(number, hit) for number, hit in enumerate(self._listed)]

    def _hit(self, key: int | str) -> Hit | None:
        return self._listed[int(key)] if int(key) < len(self._listed) else None

    def detail(self, key: int | str) -> Sequence[Line]:
        hit = self._hit(key)
        if hit is None:
            return []
        made = [line((hit.kind, "key"), f"  {hit.where}", (f"  compile {hit.compile_id}", "dim")), Line()]
        return [*made, *self._around(hit.target)] if hit.target.line else [*made, line(hit.text)]

    def _around(self, target: Location) -> list[Line]:
        kind, _, name = (target.document or "").partition(":")
        text = self.session.source(name) if kind == "source" else self.session.payload(int(name))
        lines = (text or "").split("\n")
        here = (target.line or 1) - 1
        first = max(0, here - _AROUND)
        return [
            line((f"{number + 1:>6} ", "gutter"), (shown(lines[number][:2000]), "strong" if number == here else ""))
            for number in range(first, min(len(lines), here + _AROUND + 1))
        ]

    def enter(self, key: int | str) -> Location | None:
        hit = self._hit(key)
        return hit.target if hit else None

    def moved(self, lines: Lines) -> None:
        if lines is self.table and self._hit_under() is not None:
            super().moved(lines)

    def _hit_under(self) -> Hit | None:
        return self._hit(self.table.key) if self.table.key is not None else None


def _hunted(hunt: Hunt) -> None:
    try:
        hunt.run()
    except DynadiagError as error:
        hunt.problem = one_line(str(error))
    finally:
        hunt.over = True


def _row(number: int, hit: Hit) -> Row:
    return Row((hit.kind, hit.compile_id, hit.where, hit.text), number)
