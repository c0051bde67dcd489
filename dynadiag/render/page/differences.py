"""The comparison of two recordings on a page: their figures side by side, and the differences that `diff` finds."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.diff.comparison import compare_recordings
from dynadiag.diff.difference import ENVIRONMENT, SIGNS, Difference, NodeDifference
from dynadiag.recording.reader import Recording
from dynadiag.render.page.model import PageSection
from dynadiag.render.page.redaction import Redaction
from dynadiag.render.paths import relative_path

__all__ = ["ComparisonView", "DifferenceView", "comparison_view"]

_MAX_ROWS = 200  # nodes of a graph, and lines of a source diff; `dynadiag diff --all` has more
_STAGES = {
    "break": "their graph breaks",
    "recompile": "their recompiles",
    "guard": "their guards",
    "dynamo": "Dynamo's graph",
    "aot": "AOTAutograd's graph",
    "post_grad": "the graph after all passes",
    "kernel": "the kernels",
    "cache": "what the compiler caches gave",
}
_KINDS = {"added": "only in the second", "removed": "only in the first", "changed": "changed", "moved": "moved"}


@dataclass(frozen=True, slots=True)
class DifferenceView:
    """A difference. ``nodes`` are rows of (kind, sign, kind in words, first run, second run).

    ``compiles`` names the compiles that differ, once where both runs call them alike.
    """

    stage: str
    text: str
    place: str
    anchor: str
    compile_ids: tuple[str, str]
    compiles: str
    nodes: tuple[tuple[str, str, str, str, str], ...]
    details: tuple[tuple[str, str], ...]  # the kind of a line, and the line
    more: int


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Two recordings. ``figures`` are rows of (what, first run, second run, whether they differ)."""

    name: str
    before: PageSection
    after: PageSection
    headline: str
    severity: str
    figures: tuple[tuple[str, str, str, bool], ...]
    first: DifferenceView | None
    environment: tuple[DifferenceView, ...]
    follows: tuple[DifferenceView, ...]
    notes: tuple[str, ...]


def comparison_view(
    before: Recording, after: Recording, sections: tuple[PageSection, PageSection], redaction: Redaction
) -> ComparisonView:
    """Compare two recordings, of which the page has these sections."""
    found = compare_recordings(before, after)
    first = found.differences[found.first] if found.first is not None else None
    views = [(item, _view(item, sections[1].name, after.run.cwd, redaction)) for item in found.differences]
    others = [(item, view) for item, view in views if item is not first]
    return ComparisonView(
        name=f"{sections[1].name}diff",
        before=sections[0],
        after=sections[1],
        headline=_headline(first),
        severity="good" if found.same else "warning",
        figures=tuple(_figures(*sections)),
        first=next((view for item, view in views if item is first), None),
        environment=tuple(view for item, view in others if item.stage == ENVIRONMENT),
        follows=tuple(view for item, view in others if item.stage != ENVIRONMENT),
        notes=() if redaction.active else found.notes,
    )


def _headline(first: Difference | None) -> str:
    if first is None:
        return "The same was compiled in both runs."
    if first.stage == ENVIRONMENT:
        return "The same was compiled in both runs, which were given different things."
    return f"The runs differ, first in {_STAGES[first.stage]}."


def _figures(before: PageSection, after: PageSection) -> list[tuple[str, str, str, bool]]:
    """The figures of both runs: what was counted, and what the run was."""
    sides = [{**{label: str(number) for label, number in each.counts}, **dict(each.run)} for each in (before, after)]
    labels = dict.fromkeys([*sides[0], *sides[1]])
    rows = ((label, sides[0].get(label, ""), sides[1].get(label, "")) for label in labels)
    return [(label, old, new, old != new and label != "seconds") for label, old, new in rows]


def _view(item: Difference, name: str, cwd: str | None, redaction: Redaction) -> DifferenceView:
    file = redaction.file(relative_path(item.file, cwd)) if item.file else ""
    place = f"{file}:{item.line}" if file and item.line else file
    details = () if redaction.active or item.nodes else item.details
    nodes = () if redaction.active else item.nodes
    return DifferenceView(
        stage=item.stage.replace("_", "-"),
        text=redaction.text(item.text),
        place=place,
        anchor=f"{name}line={place}" if item.line and not redaction.active else "",
        compile_ids=(item.compile_ids[0] or "", item.compile_ids[1] or ""),
        compiles=" and ".join(dict.fromkeys(each for each in item.compile_ids if each)),
        nodes=tuple(_node(each) for each in nodes[:_MAX_ROWS]),
        details=tuple((_kind(line), line) for line in details[:_MAX_ROWS]),
        more=max(0, len(nodes) - _MAX_ROWS, len(details) - _MAX_ROWS),
    )


def _node(item: NodeDifference) -> tuple[str, str, str, str, str]:
    return item.kind, SIGNS[item.kind], _KINDS[item.kind], item.before or "", item.after or ""


def _kind(line: str) -> str:
    return {"+": "added", "-": "removed"}.get(line[:1], "")
