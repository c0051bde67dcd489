"""Text of a recording made safe for a terminal.

A recording may come from a stranger, and a file name, an exception's message or a line of source may hold
anything: an escape sequence that recolours, retitles or types into the terminal, a carriage return that
overwrites what stands there, an override that turns the reading direction round.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["clean", "clean_line"]

# Cc: control characters, Cf: formatting ones (bidi overrides, zero-width joiners, tags), Cs: lone surrogates,
# Zl and Zp: separators that some terminals take for a line end, Co: private use.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co"})
_UNSAFE_ASCII = re.compile(r"[^\n\t\x20-\x7e]")  # most text, and much faster than by categories
_KEPT = frozenset("\n\t")


def clean(text: str) -> str:
    r"""The text with each unsafe character shown as its escape (``\x1b``); line ends and tabs stay.

    >>> clean("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isascii():
        return _UNSAFE_ASCII.sub(lambda found: _escape(found[0]), text)
    return "".join(char if _is_safe(char) else _escape(char) for char in text)


def clean_line(text: str) -> str:
    """The text on one line: as `clean`, and line ends and tabs become spaces."""
    return " ".join(clean(text).split())


def _is_safe(char: str) -> bool:
    return char in _KEPT or unicodedata.category(char) not in _UNSAFE


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
