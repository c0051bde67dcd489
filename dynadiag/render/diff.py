"""The differences of two runs as text and JSON: the first one, then its causes, then the later stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dynadiag.diff.difference import COMPILED_STAGES, ENVIRONMENT, SIGNS, Comparison, Difference
from dynadiag.explanation.formatting import count
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Span
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.json_document import CommandDocument, document_of, encode
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.printer import Printer
from dynadiag.render.wrap import truncate_end, width, wrap

_ROLES = {"+": "good", "-": "error", "~": "break", ">": "dim", "@": "gutter"}
_MAX_NODES = 20  # rows of a graph, and lines of a source diff, without --all
_MAX_CAUSES = 6
_MAX_PLACE = 48  # columns of a place in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonDocument(CommandDocument):
    """The JSON document of `dynadiag diff`. `torch` is that of the second run."""

    same: bool
    first: int | None
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def comparison_json(found: Comparison, after: Recording) -> bytes:
    return encode(document_of(ComparisonDocument, found, torch=after.run.torch))


def comparison_text(found: Comparison, before: Recording, after: Recording, printer: Printer) -> str:
    """Return the text of a comparison. For equal runs it is empty, but for notes on what could not be compared."""
    return "".join(f"{line}\n" for line in _ComparisonPrinter(found, before, after, printer).lines())


def stage_text(found: Comparison, stage: str, before: Recording, after: Recording, printer: Printer) -> str:
    """Return the differences of one stage, each in full."""
    lines = _ComparisonPrinter(found, before, after, replace(printer, all_=True)).lines_of_stage(stage)
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class _ComparisonPrinter:
    """Prints the comparison of two recordings."""

    comparison: Comparison
    before: Recording
    after: Recording
    printer: Printer

    def lines(self) -> Iterator[str]:
        """The notes, the first difference with its causes, and what follows from it."""
        yield from self._notes()
        if self.comparison.first is None:
            return
        first = self.comparison.differences[self.comparison.first]
        others = [item for item in self.comparison.differences if item is not first]
        environment = [item for item in others if item.stage == ENVIRONMENT]
        text = f"{self._title(first)}{_environment_names(first, environment)}"
        lead, *rest = self.printer.wrap(f"first difference: {text}")
        yield self.printer.paint(lead, "strong")
        yield from rest
        yield from self._source_line(first)
        if environment:
            yield from self._causes(environment, alone=first.stage == ENVIRONMENT)
        yield from self._detail(first)
        if later := [item for item in others if item.stage != ENVIRONMENT]:
            yield from self._consequences(later)

    def lines_of_stage(self, stage: str) -> Iterator[str]:
        """The notes, and each difference of a stage."""
        yield from self._notes()
        differences = self.comparison.differences
        here = [item for item in differences if item.stage == stage]
        for item in here:
            yield from self._full_text(item)
        if not here and not self.comparison.same:
            yield f"{stage}: no difference; {count(len(differences), 'difference')} at other stages"

    def _notes(self) -> Iterator[str]:
        for note in self.comparison.notes:
            yield from self.printer.wrap(note, "note: ")

    def _title(self, item: Difference) -> str:
        """``kernel, model.py:20: the kernel a became b``."""
        return f"{item.stage}{self._location(item)}: {item.text}"

    def _location(self, item: Difference) -> str:
        """The line of a difference after its stage, short enough for a sentence."""
        place = source_location(item.file, item.line, None, self.after.run.cwd)
        return f", {fit_path(place, _MAX_PLACE)}" if item.file else ""

    def _list_item(self, text: str) -> Iterator[str]:
        """An item of a list, its further lines indented."""
        first, *rest = wrap(f"- {text}", self.printer.columns - 4)
        yield from (f"  {first}", *(f"    {line}" for line in rest))

    def _source_line(self, item: Difference) -> Iterator[str]:
        if item.file and item.line:
            yield from self.printer.snippet(self.after.source(item.file), Span(item.file, item.line))

    def _detail(self, item: Difference) -> Iterator[str]:
        """The nodes side by side, or the lines of the text."""
        if item.nodes or item.details:
            yield self.printer.paint("what differs:", "help")
        yield from self._side_by_side(item) if item.nodes else self._detail_lines(item.details, _MAX_NODES)

    def _detail_lines(self, lines: Sequence[str], limit: int) -> Iterator[str]:
        for line in self.printer.first(lines, limit):
            text = truncate_end(f"    {clean(line).rstrip()}", self.printer.columns)
            yield self.printer.paint(text.rstrip(), _ROLES.get(line[:1], ""))
        if len(lines) > limit and not self.printer.all_:
            yield f"    ({count(len(lines) - limit, 'more line')}: --all)"

    def _side_by_side(self, item: Difference) -> Iterator[str]:
        room = (self.printer.columns - 7) // 2
        titles = [
            fit_path(f"{source_location(run.run.target, None, None, run.run.cwd)} {id_ or ''}".strip(), room)
            for run, id_ in zip((self.before, self.after), item.compile_ids, strict=True)
        ]
        yield self.printer.paint(f"    {_cell(titles[0], room)} | {titles[1]}", "dim")
        for node in self.printer.first(item.nodes, _MAX_NODES):
            sign = SIGNS[node.kind]
            before, after = without_alike(clean_line(node.before or ""), clean_line(node.after or ""), room, room // 2)
            cells = f"{_cell(before, room)} | {truncate_end(after, room)}"
            yield self.printer.paint(f"  {sign} {cells}".rstrip(), _ROLES[sign])
        if len(item.nodes) > _MAX_NODES and not self.printer.all_:
            yield f"    ({count(len(item.nodes) - _MAX_NODES, 'more node')}: --all)"

    def _causes(self, environment: Sequence[Difference], *, alone: bool) -> Iterator[str]:
        """What the runs were given that differs. Options of torch, and source, are shown with their lines."""
        yield self.printer.paint("also given differently:" if alone else "given differently:", "help")
        for item in self.printer.first(environment, _MAX_CAUSES):
            yield from self._list_item(f"{item.text}{self._location(item)}")
            yield from self._detail_lines(item.details[2:], _MAX_NODES // 2)
        if len(environment) > _MAX_CAUSES and not self.printer.all_:
            yield f"    ({len(environment) - _MAX_CAUSES} more: --all)"

    def _consequences(self, later: Sequence[Difference]) -> Iterator[str]:
        """The differences at later stages: a line for each stage, all in full with --all."""
        yield self.printer.paint("follows:", "help")
        for stage in COMPILED_STAGES:
            here = [item for item in later if item.stage == stage]
            if self.printer.all_:
                yield from (line for item in here for line in self._full_text(item))
            elif here:
                more = f" (and {len(here) - 1} more: --all)" if len(here) > 1 else ""
                yield from self._list_item(f"{self._title(here[0])}{more}")

    def _full_text(self, item: Difference) -> Iterator[str]:
        yield from self._list_item(self._title(item))
        yield from self._source_line(item)
        yield from self._detail(item)


def _environment_names(first: Difference, environment: Sequence[Difference]) -> str:
    """The names of what was given differently, for the end of the first line: they are the likely cause."""
    names = [item.text.partition(" was ")[0] for item in environment if not item.details]
    if first.stage == ENVIRONMENT or not names:
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"; given differently: {names[0]}{more}"


def without_alike(before: str, after: str, room: int, kept: int) -> tuple[str, str]:
    """Leave out words that both have before the first that differs, as far as there is no ``room`` for that one.

    The first ``kept`` letters stay.
    """
    alike = next((place for place, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    start = before[:alike].rfind(" ") + 1  # of the word that differs
    left_out = min(max(len(before), len(after)) + 1 - room, start - kept)
    if left_out <= 1:
        return before, after
    return f"{before[:kept]}…{before[kept + left_out :]}", f"{after[:kept]}…{after[kept + left_out :]}"


def _cell(text: str, room: int) -> str:
    cut = truncate_end(clean_line(text), room)
    return cut + " " * (room - width(cut))
