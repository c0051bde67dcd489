"""The piece of the user's source that a finding blames, as a short text."""

from __future__ import annotations

from collections.abc import Mapping

from dynadiag.recording.records import Span
from dynadiag.render.printer import source_lines
from tui.styled_text import one_line

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
