"""Findings on the screen: sections of the text report, an error on one line, and the source that a finding blames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynadiag.explanation.formatting import shorten
from dynadiag.recording.records import Span
from dynadiag.recording.torch_text.failures import first_error
from dynadiag.render.printer import Printer, source_lines
from tui.styled_text import Fragment, Line, one_line

_MAX_ERROR_CHARS = 200  # characters
_MIN_PART_CHARS = 60  # with less room for a line it is left out: "difference:" alone says nothing
_END = re.compile(r"(?<!e\.g)(?<!i\.e)\. ")
_MIN_SENTENCE_CHARS = 40  # a full stop before this many characters belongs to a name


def brief_error(reason: str) -> str:
    """Return the first lines of an error, as many as fit. If a compiler wrote it, the first one and what it marks."""
    first, *rest = [one_line(text) for text in reason.split("\n") if text.strip()] or [""]
    said = first_error(rest)
    shown = shorten(first, _MAX_ERROR_CHARS)
    for text in ["…", said] if said else rest:
        room = _MAX_ERROR_CHARS - len(shown) - 1
        if len(text) > room:
            return f"{shown} {shorten(text, room)}" if room >= _MIN_PART_CHARS else f"{shown.rstrip('… ')} …"
        shown = f"{shown} {text}"
    return shown


def first_sentence(text: str) -> str:
    whole = one_line(text)
    found = _END.search(whole, _MIN_SENTENCE_CHARS)
    return whole[: found.start() + 1] if found else whole


_MAX_CHARS = 40


def span_text(sources: Mapping[str, str | None], span: Span) -> str:
    """Return the text of a span, shortened; empty where its columns or its file are not known."""
    source = sources.get(span.file or "")
    if not source or span.line is None or span.column is None:
        return ""
    line = "".join(source_lines(source)[span.line - 1 : span.line])
    more = span.end_line not in (None, span.line)
    text = one_line(line[span.column : None if more else span.end_column]).strip()
    cut = more or len(text) > _MAX_CHARS
    return f"{text[:_MAX_CHARS]}…" if cut and text else text


# Markers in Unicode's private use area. `clean` escapes those, so no text of a recording contains them.
_OPEN, _CLOSE, _FIRST = "\ue000", "\ue001", 0xE100
_MIN_COLUMNS = 40  # minimum columns of a report
_ROLES = ("strong", "dim", "error", "break", "recompile", "gutter", "mark", "help", "good")


@dataclass(frozen=True, slots=True)
class RolePrinter(Printer):
    """A printer that marks roles instead of writing colors. Its width is that of the pane."""

    @property
    def columns(self) -> int:
        return max(self.width, _MIN_COLUMNS)

    def paint(self, text: str, role: str) -> str:
        return f"{_OPEN}{chr(_FIRST + _ROLES.index(role))}{text}{_CLOSE}" if role in _ROLES and text else text


def styled_report_lines(report: Iterable[str]) -> list[Line]:
    """Return the lines of a report that was written in a `RolePrinter`."""
    return [Line(tuple(_fragments(text))) for text in report]


def _fragments(text: str) -> Iterable[Fragment]:
    for piece in text.split(_OPEN):
        head, sep, tail = piece.partition(_CLOSE)
        if sep:
            yield head[1:], _ROLES[ord(head[0]) - _FIRST]
        rest = tail if sep else head
        if rest:
            yield rest, ""
