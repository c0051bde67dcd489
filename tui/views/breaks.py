"""The Breaks screen: each root cause once, with the diagnostic of the text report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

from dynadiag.explain import Explanation
from dynadiag.explain.impact import Impact
from dynadiag.render.breaks import breaks_section
from dynadiag.render.paths import source_location
from tui.location import Location
from tui.styled_report import RoleStyle, styled_report_lines
from tui.styled_text import Line, one_line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

__all__ = ["BreaksView"]

T = TypeVar("T")
_COST = Column("µs a call", numeric=True)  # in a warm call, if `dynadiag compare` profiled one


@dataclass(frozen=True, slots=True, kw_only=True)
class _SingleBreak(Explanation):
    """An explanation with a single break."""

    chosen: Impact

    @property
    def impacts(self) -> tuple[Impact, ...]:
        return (self.chosen,)


class BreaksView(ListingView):
    """The graph breaks, the worst first."""

    NAME: ClassVar[str] = "breaks"
    TITLE: ClassVar[str] = "Breaks"
    NOTHING: ClassVar[str] = "no graph break was recorded"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("id"),
        Column("what", max_width=44),
        Column("where", max_width=40, is_path=True),
        Column("in", max_width=30),
        Column("graphs", numeric=True),
        Column("met", numeric=True),
        Column("compiles"),
    )

    def columns(self) -> Sequence[Column]:
        explanation = self.session.known_explanation
        return _with_cost(self.COLUMNS, _COST) if explanation is not None and explanation.warm else self.COLUMNS

    def rows(self) -> Sequence[Row]:
        explanation = self.session.explanation()
        return [
            _row(impact, explanation.run.cwd, measured=explanation.warm is not None) for impact in explanation.impacts
        ]

    def detail(self, key: int | str) -> Sequence[Line]:
        explanation = self.session.explanation()
        impact = next((item for item in explanation.impacts if item.root.index == key), None)
        if impact is None:
            return []
        values = {field.name: getattr(explanation, field.name) for field in fields(Explanation)}
        width = self.details.columns
        return styled_report_lines(breaks_section(_SingleBreak(**values, chosen=impact), RoleStyle(width), True))

    def target_of(self, key: int | str) -> Location | None:
        impact = next((item for item in self.session.explanation().impacts if item.root.index == key), None)
        if impact is None:
            return None
        root = impact.root
        document = f"source:{root.span.file}" if root.span.file else None
        return Location("code", compile_id=root.compile_id, document=document, line=root.span.line)


def _with_cost(cells: Sequence[T], cost: T) -> tuple[T, ...]:
    """Insert the cost of a break before the last cell, which lists compiles."""
    return (*cells[:-1], cost, cells[-1])


def _row(impact: Impact, cwd: str | None, *, measured: bool) -> Row:
    root = impact.root
    cells: tuple[str, ...] = (
        one_line(root.gb_id or "-"),
        one_line(root.gb_type or "of unknown type"),
        source_location(root.span.file, root.span.line, None, cwd),
        one_line(root.function),
        str(impact.graphs),
        str(impact.met),
        one_line(", ".join(impact.compile_ids[:20])),
    )
    if measured:
        cells = _with_cost(cells, f"{impact.cost.seconds * 1e6:,.1f}" if impact.cost else "-")
    return Row(cells, root.index, "error" if root.fatal else "")
