"""The Breaks screen: each root cause once, with the diagnostic of the text report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.rules import Rule
from dynadiag.render.findings import finding_text
from dynadiag.render.paths import source_location
from tui.location import Location, source_place
from tui.styled_report import RolePrinter, span_text, styled_report_lines
from tui.styled_text import Line, one_line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row, before_last

_COST = Column("µs a call", numeric=True)  # in a warm call, if `dynadiag compare` profiled one


class BreaksView(ListingView):
    """The graph breaks, the worst first."""

    NOTHING: ClassVar[str] = "no graph break was recorded"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("id"),
        Column("what", max_width=72),
        Column("where", max_width=40, is_path=True),
        Column("in", max_width=22, is_path=True, spare=1),
        Column("graphs", numeric=True),
        Column("met", numeric=True, spare=1),  # as many as compiles are listed
        Column("compiles", min_last_width=10),  # the detail names all of them
    )

    def columns(self) -> Sequence[Column]:
        explanation = self.session.known_explanation
        return before_last(self.COLUMNS, [_COST]) if explanation is not None and explanation.warm else self.COLUMNS

    def rows(self) -> Sequence[Row]:
        explanation = self.session.explanation()
        return [_row(item, explanation, measured=explanation.warm is not None) for item in _findings(explanation)]

    def key_of(self, item: int) -> int:
        """The row of a break: that of the finding which tells of it."""
        explanation = self.session.known_explanation
        found = _findings(explanation) if explanation is not None else []
        return next((each.records[0] for each in found if item in each.records), item)

    def detail(self, key: int | str) -> Sequence[Line]:
        explanation = self.session.explanation()
        item = _of(explanation, key)
        if item is None:
            return []
        return styled_report_lines(finding_text(item, explanation, RolePrinter(self.detail_columns, all_=True)))

    def target_of(self, key: int | str) -> Location | None:
        item = _of(self.session.explanation(), key)
        if item is None:
            return None
        return source_place(item.own_span.file, item.own_span.line, item.compile_ids[0])


def _findings(explanation: Explanation) -> list[Finding]:
    """The findings on breaks, those that torch raised among them; the most important first."""
    return [item for item in explanation.findings if item.rule in (Rule.BREAK, Rule.FAILED_COMPILE) and item.records]


def _of(explanation: Explanation, key: int | str) -> Finding | None:
    return next((item for item in _findings(explanation) if item.records[0] == key), None)


def _row(item: Finding, explanation: Explanation, *, measured: bool) -> Row:
    place = item.own_span
    blamed = span_text(explanation.sources, place)
    cells: tuple[str, ...] = (
        one_line(item.id or "-"),
        f"{blamed}  {one_line(item.title)}" if blamed else one_line(item.title),
        source_location(place.file, place.line, None, explanation.run.cwd),
        one_line(item.function),
        str(item.cost.graphs or 0),
        str(len(item.records)),
        one_line(", ".join(item.compile_ids[:20])),
    )
    if measured:
        call = item.cost.call
        cells = before_last(cells, [f"{call.seconds * 1e6:,.1f}" if call else "-"])
    return Row(cells, item.records[0], "error" if item.severity == "error" else "")
