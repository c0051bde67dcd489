"""Search hits: the matching line, what kind of record it is in, and where enter goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dynadiag.recording.digest.graphs import stage_of
from dynadiag.recording.records import Break, Compile, Guard, Kernel, Recompile, Trial
from dynadiag.render.paths import source_location
from tui.location import Location
from tui.log_search import LogMatch
from tui.session import Session
from tui.styled_text import one_line
from tui.text_match import TextMatcher

__all__ = ["RECORD_TYPES", "Hit", "log_hit", "record_hit"]

# The tables to search, in this order. The log is searched after them.
RECORD_TYPES: dict[str, type[Any]] = {
    "compile": Compile,
    "break": Break,
    "recompile": Recompile,
    "kernel": Kernel,
    "trial": Trial,
    "guard": Guard,
}
_CONTEXT_CHARS, _MAX_CHARS = 20, 240  # characters of a long text: before the match, and in all


@dataclass(frozen=True, slots=True)
class Hit:
    """One search hit. Its texts have no control characters."""

    kind: str  # a key of `RECORD_TYPES`, or "source", "graph", "code", "event"
    compile_id: str
    where: str
    text: str
    target: Location


def record_hit(kind: str, record: Any, finder: TextMatcher, cwd: str | None) -> Hit | None:
    """Return the hit of a record, or ``None`` if none of its texts matches."""
    found = next((text for text in _searched_texts(record) if finder.matches(text)), None)
    if found is None:
        return None
    number = getattr(record, "compile_id", "-")
    return Hit(kind, one_line(number), _record_location(record, cwd), _excerpt(found, finder), _target(kind, record))


def log_hit(seen: LogMatch, session: Session) -> Hit:
    """Return the hit of a matching line of the log."""
    event = seen.span.event
    name = event.name if event.kind == "artifact" and event.name else event.kind
    stage = stage_of(name)
    kind, where, document = "event", name, f"event:{event.index}"
    if seen.line and event.kind == "dynadiag_source":
        file = _source_file(session, event.index)
        kind, where, document = "source", source_location(file, seen.line, None, session.run.cwd), f"source:{file}"
    elif seen.line and stage is not None:
        kind, where = "graph", f"{stage}:{seen.line}"
    elif seen.line and event.kind == "inductor_output_code":
        kind, where = "code", f"generated code:{seen.line}"
    elif seen.line:
        where = f"{name}:{seen.line}"
    if seen.line:
        target = Location("code", None if kind == "source" else event.compile_id, document=document, line=seen.line)
    else:
        target = Location("events", item=event.index)
    return Hit(kind, one_line(event.compile_id), one_line(where), one_line(seen.text), target)


def _source_file(session: Session, event: int) -> str:
    data = session.recording.metadata(event).get("dynadiag_source")
    file = data.get("file") if isinstance(data, dict) else None
    return file if isinstance(file, str) else "?"


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


def _excerpt(text: str, finder: TextMatcher) -> str:
    """Return an excerpt of a text around the match."""
    first = max(0, finder.spans(text)[0][0] - _CONTEXT_CHARS)
    piece = one_line(text[first : first + _MAX_CHARS])
    return f"…{piece}" if first else piece


def _target(kind: str, record: Any) -> Location:
    if isinstance(record, Compile):
        return Location("compiles", compile_id=record.compile_id)
    if isinstance(record, Guard):
        return Location("guards", compile_id=record.compile_id, item=record.index)
    cause = getattr(record, "cause", None)
    return Location(f"{kind}s", item=record.index if cause is None else cause)
