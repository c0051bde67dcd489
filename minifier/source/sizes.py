"""The size of a program: lines with code, and tokens. Layout and comments do not count."""

from __future__ import annotations

import io
import tokenize

__all__ = ["count_lines", "count_tokens"]

_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
_STRING_UNIT = 12  # characters of a string that count as one more token: data hidden in text is not small


def count_lines(text: str) -> int:
    """Lines that are neither blank nor a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


def count_tokens(text: str) -> int:
    """Tokens of Python, and one more for every twelve characters of a string. Raises if it is not Python."""
    found = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in _LAYOUT]
    return len(found) + sum(len(t.string) // _STRING_UNIT for t in found if t.type == tokenize.STRING)
