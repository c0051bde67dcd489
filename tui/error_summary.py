"""Error messages and advice, shortened to one line."""

from __future__ import annotations

import re

from dynadiag.explanation.formatting import shorten
from dynadiag.recording.torch_text.failures import first_error
from tui.styled_text import one_line

_MAX_CHARS = 200  # characters
_MIN_PART_CHARS = 60  # with less room for a line it is left out: "difference:" alone says nothing
_END = re.compile(r"(?<!e\.g)(?<!i\.e)\. ")
_MIN_SENTENCE_CHARS = 40  # a full stop before this many characters belongs to a name


def brief_error(reason: str) -> str:
    """Return the first lines of an error, as many as fit. If a compiler wrote it, the first one and what it marks."""
    first, *rest = [one_line(text) for text in reason.split("\n") if text.strip()] or [""]
    said = first_error(rest)
    shown = shorten(first, _MAX_CHARS)
    for text in ["…", said] if said else rest:
        room = _MAX_CHARS - len(shown) - 1
        if len(text) > room:
            return f"{shown} {shorten(text, room)}" if room >= _MIN_PART_CHARS else f"{shown.rstrip('… ')} …"
        shown = f"{shown} {text}"
    return shown


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    whole = one_line(text)
    found = _END.search(whole, _MIN_SENTENCE_CHARS)
    return whole[: found.start() + 1] if found else whole
