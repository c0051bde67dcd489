"""Text laid out in the columns of a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from dynadiag.render.clean import clean_line

_ELLIPSIS = "…"
_BREAKS_AFTER = "./_(,="  # where a word that is longer than a line goes on in the next
_PIECE = re.compile(r"(?:`[^`]*`|[^ ])+")
_MAX_COLUMNS = 4000  # columns of one text in a report: no sentence of torch is longer, a hostile recording's may be


def _char_width(char: str) -> int:
    """Columns that a character takes: two for wide ones (East Asian Width W and F), none for combining ones."""
    if char.isascii():
        return 1
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def width(text: str) -> int:
    """Columns that a text on one line takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def truncate_middle(text: str, columns: int) -> str:
    """The text in at most `columns`, with an ellipsis for its middle if it is longer: both ends tell most.

    >>> truncate_middle("abcdefghij", 7)
    'abc…hij'
    """
    if width(text) <= columns:
        return text
    left = _fitting(text, (columns - 1) // 2 + (columns - 1) % 2)
    right = _fitting(text[::-1], (columns - 1) // 2)[::-1]
    return f"{left}{_ELLIPSIS}{right}"


def truncate_end(text: str, columns: int) -> str:
    """The text in at most `columns`, with an ellipsis for its end if it is longer: of code the beginning tells most.

    >>> truncate_end("return self.last(x)", 12)
    'return self…'
    """
    return text if width(text) <= columns else _fitting(text, columns - 1) + _ELLIPSIS


def truncate_start(text: str, columns: int) -> str:
    """The text in at most `columns`, with an ellipsis for its beginning if it is longer: of a path the end tells most.

    Of an indented text as much of the indentation is left out first as is needed.

    >>> truncate_start("transformer.h.1.mlp.c_fc", 12)
    '….1.mlp.c_fc'
    >>> truncate_start("       c_fc", 8)
    '    c_fc'
    """
    text = text[min(max(0, width(text) - columns), len(text) - len(text.lstrip(" "))) :]
    return text if width(text) <= columns else _ELLIPSIS + _fitting(text[::-1], columns - 1)[::-1]


def wrap(text: str, columns: int) -> list[str]:
    """The text cleaned, in lines of at most `columns`, broken between words. A longer word takes several lines: it may
    be code that is copied.

    >>> wrap("set torch._dynamo.config.capture_scalar_outputs", 24)
    ['set', 'torch._dynamo.config.', 'capture_scalar_outputs']
    """
    lines: list[str] = []
    # What may not be broken: words, and code in backquotes as far as it fits on a line.
    words: list[str] = []
    for piece in _PIECE.findall(clean_line(truncate_middle(text, _MAX_COLUMNS))) or [""]:
        whole = [piece] if width(piece) <= columns else piece.split(" ")
        words += (part for word in whole for part in _parts(word, columns))
    for word in words:
        if lines and width(lines[-1]) + 1 + width(word) <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def wrap_indented(prefix: str, text: str, columns: int) -> list[str]:
    """The text after a prefix, its further lines indented by the width of the prefix."""
    first, *rest = wrap(text, max(columns - width(prefix), 1))
    return [prefix + first, *(" " * width(prefix) + line for line in rest)]


def _parts(word: str, columns: int) -> Iterator[str]:
    """A word in parts that fit. All but the last fill more than half a line, so no two of them fit on one."""
    while width(word) > columns:
        fitting = _fitting(word, columns) or word[0]
        cut = max(fitting.rfind(mark) for mark in _BREAKS_AFTER) + 1
        part = fitting[:cut] if width(fitting[:cut]) * 2 > columns else fitting
        yield part
        word = word[len(part) :]
    yield word


def _fitting(text: str, columns: int) -> str:
    taken = 0
    for position, char in enumerate(text):
        taken += _char_width(char)
        if taken > columns:
            return text[:position]
    return text
