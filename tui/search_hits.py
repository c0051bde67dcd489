"""Search hits: the matching line, what kind of record it is in, and where enter goes; and hits that belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynadiag.grouping import grouped
from dynadiag.kernels.graph_parser import graph_lines, operator_of
from dynadiag.recording.digest.graphs import stage_of
from dynadiag.recording.log_search import LogMatch
from dynadiag.recording.records import Break, Compile, Guard, Kernel, Recompile, Trial
from dynadiag.render.paths import source_location
from tui.location import Location
from tui.session import Session
from tui.styled_text import one_line
from tui.text_match import TextMatcher

# Kinds in the order of their groups: what was computed, then where it was written, then what happened; raw events last.
_ORDER = ("kernel", "graph", "code", "source", "compile", "break", "recompile", "guard", "trial", "event")
# The tables to search, in this order. The log is searched after them.
RECORD_TYPES: dict[str, type[Any]] = {
    "compile": Compile,
    "break": Break,
    "recompile": Recompile,
    "kernel": Kernel,
    "trial": Trial,
    "guard": Guard,
}
MadeOf = tuple[str, str]  # a line of source, as ``file:line``, and an operator
_CONTEXT_CHARS, _MAX_CHARS = 20, 240  # characters of a long text: before the match, and in all


@dataclass(frozen=True, slots=True)
class Hit:
    """One search hit. Its texts have no control characters."""

    kind: str  # a key of `RECORD_TYPES`, or "source", "graph", "code", "event"
    compile_id: str
    where: str
    text: str
    target: Location
    made_of: MadeOf = ("", "")  # of a line of a graph


@dataclass(frozen=True, slots=True)
class HitGroup:
    """Hits that are one row: the same operator of a line in several graphs, or everything in raw events."""

    first: int  # the number of its first hit
    kind: str
    where: str
    text: str
    hits: tuple[Hit, ...]

    @property
    def compile_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(hit.compile_id for hit in self.hits))


def group_hits(hits: Sequence[Hit]) -> list[HitGroup]:
    """Return hits by operator and line, kernels and graphs first; the raw events come last, as one group."""
    found = grouped((_group_key(hit), number) for number, hit in enumerate(hits))
    groups = [_group(kind, [hits[number] for number in numbers], numbers[0]) for (kind, *_), numbers in found.items()]
    return sorted(groups, key=lambda group: _ORDER.index(group.kind))


def _group(kind: str, hits: Sequence[Hit], first: int) -> HitGroup:
    place, operator = hits[0].made_of
    whole = {"event": "lines of raw events", "code": "lines of generated code"}.get(kind)
    text = f"{len(hits):,} {whole}: tab lists them" if whole and len(hits) > 1 else hits[0].text
    return HitGroup(first, kind, place or hits[0].where, f"{operator}  {text}" if operator else text, tuple(hits))


def _group_key(hit: Hit) -> tuple[str, ...]:
    if hit.kind == "event":
        return ("event",)
    if hit.kind == "code":
        return ("code", hit.compile_id)
    return (hit.kind, *hit.made_of) if any(hit.made_of) else (hit.kind, hit.where, hit.text)


def line_places(text: str, cwd: str | None) -> list[MadeOf]:
    """Return what each line of a printed graph was made of; empty texts where nothing is known."""
    found, place = list[MadeOf](), ""
    for item in graph_lines(text):
        if item.kind == "comment" and item.source_line is not None:
            place = source_location(item.source_line.file, item.source_line.line, None, cwd)
        found.append(("" if item.kind == "blank" else place, operator_of(item.target) if item.kind == "node" else ""))
    return found


def record_hit(kind: str, record: Any, finder: TextMatcher, cwd: str | None) -> Hit | None:
    """Return the hit of a record, or ``None`` if none of its texts matches."""
    found = next((text for text in _searched_texts(record) if finder.matches(text)), None)
    if found is None:
        return None
    number = getattr(record, "compile_id", "-")
    where = _record_location(record, cwd)
    first = max(0, finder.spans(found)[0][0] - _CONTEXT_CHARS)
    piece = one_line(found[first : first + _MAX_CHARS])
    return Hit(kind, one_line(number), where, f"…{piece}" if first else piece, _target(kind, record))


def log_hit(seen: LogMatch, session: Session, places: Callable[[int], Sequence[MadeOf]]) -> Hit:
    """Return the hit of a matching line of the log. `places` says what the lines of a graph's event were made of."""
    event = seen.span.event
    name = event.name if event.kind == "artifact" and event.name else event.kind
    stage = stage_of(name)
    kind, where, document, place = "event", name, f"event:{event.index}", ("", "")
    if seen.line and event.kind == "dynadiag_source":
        data = session.recording.metadata(event.index).get("dynadiag_source")
        file = data.get("file") if isinstance(data, dict) else None
        file = file if isinstance(file, str) else "?"
        kind, where, document = "source", source_location(file, seen.line, None, session.run.cwd), f"source:{file}"
    elif seen.line and stage is not None:
        kind, where = "graph", f"{stage}:{seen.line}"
        above = places(event.index)
        place = above[seen.line - 1] if seen.line <= len(above) else place
    elif seen.line and event.kind == "inductor_output_code":
        kind, where = "code", f"generated code:{seen.line}"
    elif seen.line:
        where = f"{name}:{seen.line}"
    if seen.line:
        target = Location("code", None if kind == "source" else event.compile_id, document=document, line=seen.line)
    else:
        target = Location("events", item=event.index)
    return Hit(kind, one_line(event.compile_id), one_line(where), one_line(seen.text), target, place)


def _searched_texts(record: Any) -> Iterator[str]:
    """Yield every text of a record, short and specific ones first."""
    for name in ("compile_id", "name", "gb_id", "gb_type", "function", "kind", "source", "file", "error", "language"):
        if isinstance(value := getattr(record, name, None), str):
            yield value
    for name in ("reason", "explanation", "expression", "outcome", "candidate"):
        if isinstance(value := getattr(record, name, None), str):
            yield from value.split("\n")
    yield from getattr(record, "hints", ())
    if isinstance(record, Break) and record.span.file:
        yield record.span.file
    if isinstance(record, Recompile):
        yield from (text for one in record.reasons for text in (one.guard, one.was, one.now) if text)


def _record_location(record: Any, cwd: str | None) -> str:
    span = getattr(record, "span", record)
    file = getattr(span, "file", None)
    if file:
        return source_location(file, span.line, None, cwd)
    return one_line(getattr(record, "language", ""))


def _target(kind: str, record: Any) -> Location:
    if isinstance(record, Compile):
        return Location("compiles", compile_id=record.compile_id)
    if isinstance(record, Guard):
        return Location("guards", compile_id=record.compile_id, item=record.index)
    cause = getattr(record, "cause", None)
    return Location(f"{kind}s", item=record.index if cause is None else cause)
