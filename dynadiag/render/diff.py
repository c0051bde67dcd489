"""The differences of two runs as text and JSON: the first one, then its causes, then the later stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dynadiag import __version__
from dynadiag.diff.difference import COMPILED_STAGES, ENVIRONMENT, SIGNS, Comparison, Difference, NodeDifference
from dynadiag.explanation.formatting import count
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Span
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.json_document import SCHEMA, encode
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.snippet import snippet
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_end, width, wrap, wrap_indented

__all__ = ["ComparisonDocument", "comparison_json", "comparison_text", "stage_text"]

_ROLES = {"+": "good", "-": "error", "~": "break", ">": "dim", "@": "gutter"}
_MAX_NODES = 20  # rows of a graph, and lines of a source diff, without --all
_MAX_CAUSES = 6
_MAX_PLACE = 48  # columns of a place in a sentence


@dataclass(frozen=True, slots=True)
class ComparisonDocument:
    """The JSON document of `dynadiag diff`. `torch` is that of the second run."""

    schema: int
    dynadiag: str
    torch: str | None
    same: bool
    first: int | None
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def comparison_json(found: Comparison, after: Recording) -> bytes:
    """Return the JSON document of a comparison."""
    document = ComparisonDocument(
        SCHEMA, __version__, after.run.torch, found.same, found.first, found.differences, found.notes
    )
    return encode(msgspec.to_builtins(document))


def comparison_text(found: Comparison, before: Recording, after: Recording, style: Style, *, all_: bool = False) -> str:
    """Return the text of a comparison. For equal runs it is empty, but for notes on what could not be compared."""
    lines = [*_notes(found, style), *_body(found, before, after, style, all_=all_)]
    return "".join(f"{line}\n" for line in lines)


def stage_text(found: Comparison, stage: str, before: Recording, after: Recording, style: Style) -> str:
    """Return the differences of one stage, each in full."""
    here = [item for item in found.differences if item.stage == stage]
    lines = [*_notes(found, style), *(line for item in here for line in _full_text(item, before, after, style))]
    if not here and not found.same:
        lines.append(f"{stage}: no difference; {count(len(found.differences), 'difference')} at other stages")
    return "".join(f"{line}\n" for line in lines)


def _location(item: Difference, cwd: str | None) -> str:
    """The line of a difference after its stage, short enough for a sentence."""
    return f", {fit_path(source_location(item.file, item.line, None, cwd), _MAX_PLACE)}" if item.file else ""


def _list_item(text: str, style: Style) -> Iterator[str]:
    """An item of a list, its further lines indented."""
    first, *rest = wrap(f"- {text}", style.columns - 4)
    yield from (f"  {first}", *(f"    {line}" for line in rest))


def _notes(found: Comparison, style: Style) -> Iterator[str]:
    for note in found.notes:
        yield from wrap_indented("note: ", note, style.columns)


def _body(found: Comparison, before: Recording, after: Recording, style: Style, *, all_: bool) -> Iterator[str]:
    if found.first is None:
        return
    first = found.differences[found.first]
    cwd = after.run.cwd
    others = [item for item in found.differences if item is not first]
    environment = [item for item in others if item.stage == ENVIRONMENT]
    text = f"{_title(first, after)}{_environment_names(first, environment)}"
    lead, *rest = wrap(f"first difference: {text}", style.columns)
    yield style.paint(lead, "strong")
    yield from rest
    yield from _source_line(first, after, style)
    yield from _causes(environment, cwd, style, all_=all_, alone=first.stage == ENVIRONMENT)
    yield from _detail(first, before, after, style, all_=all_)
    yield from _consequences([item for item in others if item.stage != ENVIRONMENT], before, after, style, all_=all_)


def _environment_names(first: Difference, environment: Sequence[Difference]) -> str:
    """The names of what was given differently, for the end of the first line: they are the likely cause."""
    names = [item.text.partition(" was ")[0] for item in environment if not item.details]
    if first.stage == ENVIRONMENT or not names:
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"; given differently: {names[0]}{more}"


def _source_line(item: Difference, after: Recording, style: Style) -> Iterator[str]:
    if item.file and item.line:
        yield from snippet(after.source(item.file), Span(item.file, item.line), style)


def _detail(item: Difference, before: Recording, after: Recording, style: Style, *, all_: bool) -> Iterator[str]:
    """The nodes side by side, or the lines of the text."""
    if item.nodes or item.details:
        yield style.paint("what differs:", "help")
    if item.nodes:
        yield from _side_by_side(item, before, after, style, len(item.nodes) if all_ else _MAX_NODES)
    else:
        yield from _detail_lines(item.details, style, len(item.details) if all_ else _MAX_NODES)


def _detail_lines(lines: Sequence[str], style: Style, limit: int) -> Iterator[str]:
    for line in lines[:limit]:
        text = truncate_end(f"    {clean(line).rstrip()}", style.columns)
        yield style.paint(text.rstrip(), _ROLES.get(line[:1], ""))
    if len(lines) > limit:
        yield f"    ({count(len(lines) - limit, 'more line')}: --all)"


def _side_by_side(item: Difference, before: Recording, after: Recording, style: Style, limit: int) -> Iterator[str]:
    room = (style.columns - 7) // 2
    titles = [
        fit_path(f"{source_location(run.run.target, None, None, run.run.cwd)} {id_ or ''}".strip(), room)
        for run, id_ in zip((before, after), item.compile_ids, strict=True)
    ]
    yield style.paint(f"    {_cell(titles[0], room)} | {titles[1]}", "dim")
    for node in item.nodes[:limit]:
        yield _row(node, room, style)
    if len(item.nodes) > limit:
        yield f"    ({count(len(item.nodes) - limit, 'more node')}: --all)"


def _row(node: NodeDifference, room: int, style: Style) -> str:
    sign = SIGNS[node.kind]
    cells = _cell(node.before or "", room), truncate_end(clean_line(node.after or ""), room)
    return style.paint(f"  {sign} {cells[0]} | {cells[1]}".rstrip(), _ROLES[sign])


def _cell(text: str, room: int) -> str:
    cut = truncate_end(clean_line(text), room)
    return cut + " " * (room - width(cut))


def _causes(
    environment: Sequence[Difference], cwd: str | None, style: Style, *, all_: bool, alone: bool
) -> Iterator[str]:
    """What the runs were given that differs. Options of torch, and source, are shown with their lines."""
    if not environment:
        return
    yield style.paint("also given differently:" if alone else "given differently:", "help")
    limit = len(environment) if all_ else _MAX_CAUSES
    for item in environment[:limit]:
        yield from _list_item(f"{item.text}{_location(item, cwd)}", style)
        yield from _detail_lines(item.details[2:], style, len(item.details) if all_ else _MAX_NODES // 2)
    if len(environment) > limit:
        yield f"    ({len(environment) - limit} more: --all)"


def _consequences(
    others: Sequence[Difference], before: Recording, after: Recording, style: Style, *, all_: bool
) -> Iterator[str]:
    """The differences at later stages: a line for each stage, all in full with --all."""
    if not others:
        return
    yield style.paint("follows:", "help")
    for stage in COMPILED_STAGES:
        here = [item for item in others if item.stage == stage]
        if all_:
            yield from (line for item in here for line in _full_text(item, before, after, style))
        elif here:
            more = f" (and {len(here) - 1} more: --all)" if len(here) > 1 else ""
            yield from _list_item(f"{_title(here[0], after)}{more}", style)


def _title(item: Difference, after: Recording) -> str:
    """``kernel, model.py:20: the kernel a became b``."""
    return f"{item.stage}{_location(item, after.run.cwd)}: {item.text}"


def _full_text(item: Difference, before: Recording, after: Recording, style: Style) -> Iterator[str]:
    yield from _list_item(_title(item, after), style)
    yield from _source_line(item, after, style)
    yield from _detail(item, before, after, style, all_=True)
