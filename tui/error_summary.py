"""Error messages and advice, shortened to one line."""

from __future__ import annotations

import re

from tui.styled_text import one_line

__all__ = ["brief_error", "first_sentence"]

_MAX_CHARS = 200  # characters
_ERROR_MARK = "error: "  # how compilers mark an error
_END = re.compile(r"(?<!e\.g)(?<!i\.e)\. ")
_MIN_SENTENCE_CHARS = 40  # a full stop before this many characters belongs to a name


def brief_error(reason: str) -> str:
    """Return the first line of an error. If a compiler wrote it, add the first line that it marks as an error."""
    first, *rest = [text for text in reason.split("\n") if text.strip()] or [""]
    said = next((text[text.find(_ERROR_MARK) :] for text in rest if _ERROR_MARK in text), "")
    return one_line(f"{first} … {said}" if said else f"{first} {' '.join(rest)}")[:_MAX_CHARS]


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    whole = one_line(text)
    found = _END.search(whole, _MIN_SENTENCE_CHARS)
    return whole[: found.start() + 1] if found else whole
