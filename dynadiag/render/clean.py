"""Text of a recording made safe for a terminal.

A recording may come from a stranger, and a file name, an exception's message or a line of source may hold
anything: an escape sequence that recolours, retitles or types into the terminal, a carriage return that
overwrites the line, a bidirectional override that reverses the reading order.
"""

from __future__ import annotations

import re
import unicodedata

# Cc: control characters, Cf: formatting ones (bidi overrides, zero-width joiners, tags), Cs: lone surrogates,
# Zl and Zp: separators that some terminals take for a line end, Co: private use.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co"})
_NOT_PLAIN_ASCII = re.compile(r"[^\n\t\x20-\x7e]")  # only these characters are looked up


def clean(text: str) -> str:
    r"""The text with each unsafe character shown as its escape (``\x1b``); line ends and tabs stay.

    >>> clean("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _NOT_PLAIN_ASCII.sub(lambda found: _shown(found[0]), text)


def clean_line(text: str) -> str:
    """The text on one line: as `clean`, and line ends and tabs become spaces."""
    return " ".join(clean(text).split())


def _shown(char: str) -> str:
    if unicodedata.category(char) not in _UNSAFE:
        return char
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
