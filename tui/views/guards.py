"""Guards of one compile: what has to hold for its code to be used again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from dynadiag.recording.records import Guard, Span
from dynadiag.render.paths import place
from dynadiag.render.snippet import snippet
from tui.location import Location
from tui.reports import RoleStyle, lines_of
from tui.roles import Line, line, one_line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

__all__ = ["GuardsView"]


class GuardsView(ListingView):
    """One compile at a time; a frame may have ten thousand."""

    NAME: ClassVar[str] = "guards"
    TITLE: ClassVar[str] = "Guards"
    NOTHING: ClassVar[str] = "no guard was recorded for this compile"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("kind", widest=32),
        Column("value", widest=60),
        Column("where", widest=32),
        Column("condition", widest=200),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket", "compile(1)", "the next compile", key_display="]", id="guards.next"),
        Binding("left_square_bracket", "compile(-1)", "the compile before", key_display="[", id="guards.previous"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._compile: str | None = None
        self._guards: dict[int, Guard] = {}

    def open(self, place: Location) -> None:
        if place.compile_id is not None and place.compile_id != self._compile:
            self._compile = place.compile_id
            self.load()
        super().open(place)

    def place(self) -> Location:
        return Location(self.NAME, compile_id=self._compile, item=super().place().item)

    def action_compile(self, by: int) -> None:
        ids = [item.compile_id for item in self.session.explanation().compiles]
        if ids:
            here = ids.index(self._compile) if self._compile in ids else 0
            self._compile = ids[(here + by) % len(ids)]
            self.load()

    def rows(self) -> Sequence[Row]:
        explanation = self.session.explanation()
        if self._compile is None:
            self._compile = explanation.compiles[0].compile_id if explanation.compiles else "-"
        guards = self.session.guards(self._compile)
        self._guards = {item.index: item for item in guards}
        return [_row(item, explanation.run.cwd) for item in guards]

    def _show(self, rows: Sequence[Row]) -> None:
        super()._show(rows)
        found = self.session.compile(self._compile or "-")
        name = f"{one_line(found.function)} " if found else ""
        self.table.border_title = f"Guards of {one_line(self._compile or '-')} {name}"

    def detail(self, key: int | str) -> Sequence[Line]:
        guard = self._guards[int(key)]
        explanation = self.session.explanation()
        style = RoleStyle(self.details.scrollable_content_region.width)
        span = Span(guard.file, guard.line)
        text = explanation.sources.get(guard.file or "") or (
            self.session.recording.source(guard.file) if guard.file else None
        )
        at = (
            place(guard.file, guard.line, None, explanation.run.cwd)
            if guard.file
            else "torch did not say which line made it"
        )
        return [
            line((one_line(guard.kind), "key"), f"  {one_line(guard.source)}"),
            line(one_line(guard.expression)),
            Line(),
            line(("    --> ", "gutter"), at),
            *lines_of(snippet(text, span, style)),
        ]

    def enter(self, key: int | str) -> Location | None:
        guard = self._guards.get(int(key))
        if guard is None or not guard.file:
            return None
        return Location("code", guard.compile_id, document=f"source:{guard.file}", line=guard.line)


def _row(item: Guard, cwd: str | None) -> Row:
    where = place(item.file, item.line, None, cwd) if item.file else "-"
    return Row((one_line(item.kind), one_line(item.source), where, one_line(item.expression)), item.index)
