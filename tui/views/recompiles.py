"""The Recompiles screen: the failed guard, its old and new value, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dynadiag.recording.records import Recompile
from dynadiag.render.findings import finding_text
from dynadiag.render.paths import source_location
from tui.location import Location, source_place
from tui.overview import guard_change_fragments, guard_changes
from tui.styled_report import RolePrinter, styled_report_lines
from tui.styled_text import Line, line, one_line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

_HEAD_LINES = 2  # the lines at the top of a diagnostic that name its subject
_MAX_CHANGES = 8  # of one recompile of several that are told together
_HELP_LABEL = "help: "


class RecompilesView(ListingView):
    """The recompiles in the order in which they happened."""

    NOTHING: ClassVar[str] = "nothing was compiled again"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("compile"),
        Column("function", max_width=30),
        Column("where", max_width=36, is_path=True),
        Column("what changed", max_width=120),
    )

    def rows(self) -> Sequence[Row]:
        explanation = self.session.explanation()
        return [_row(item, explanation.run.cwd) for item in explanation.recompiles]

    def detail(self, key: int | str) -> Sequence[Line]:
        explanation = self.session.explanation()
        findings = (item for item in explanation.findings if item.rule.is_recompile)
        found = next((item for item in findings if key in item.records), None)
        if found is None:
            return []
        printer = RolePrinter(self.detail_columns, all_=True)
        told = _advice_first(styled_report_lines(finding_text(found, explanation, printer)))
        own = next(one for one in explanation.recompiles if one.index == key)
        if own.compile_id == found.label:
            return told
        # The finding is of several, and begins with another one.
        changes = [line("    ", *change) for change in guard_changes(own.reasons)[:_MAX_CHANGES]]
        return [line((one_line(own.compile_id), "recompile"), " is one of these:"), *changes, Line(), *told]

    def target_of(self, key: int | str) -> Location | None:
        item = next((one for one in self.session.explanation().recompiles if one.index == key), None)
        if item is None:
            return None
        reason = next((one for one in item.reasons if one.file and one.line), item)  # the line that made the guard
        return source_place(reason.file, reason.line, item.compile_id)


def _advice_first(lines: list[Line]) -> list[Line]:
    """Move the advice before the list of changes, which can be screens long."""
    helps = next((place for place, item in enumerate(lines) if item.text.startswith(_HELP_LABEL)), len(lines))
    while helps < len(lines) and not lines[-1].text.strip():
        lines = lines[:-1]
    return [*lines[:_HEAD_LINES], *lines[helps:], Line(), *lines[_HEAD_LINES:helps]] if helps < len(lines) else lines


def _row(item: Recompile, cwd: str | None) -> Row:
    cells = (
        one_line(item.compile_id),
        one_line(item.function),
        source_location(item.file, item.line, None, cwd),
        "".join(text for text, _ in guard_change_fragments(item)),
    )
    return Row(cells, item.index, "error" if item.limit_reached else "")
