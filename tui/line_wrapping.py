"""Wraps lines with roles to the width of the screen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from rich.cells import cell_len, chop_cells

from tui.styled_text import Fragment, Line

_MIN_COLUMNS = 20  # minimum columns
_INDENT = 4  # columns by which continuation lines are indented
_WORD = re.compile(r"\s*\S+|\s+$")
_PART = re.compile(r"[^/.]*[/.]|[^/.]+")  # of a path or a dotted name


def wrap_lines(lines: Sequence[Line], columns: int) -> list[Line]:
    """Return the lines wrapped to `columns`. Every part of a line has the target of the line."""
    return [part for item in lines for part in _line(item, max(columns, _MIN_COLUMNS))]


def _line(item: Line, columns: int) -> Iterator[Line]:
    if cell_len(item.text) <= columns:
        yield item
        return
    text = item.text
    blank = (len(text) - len(text.lstrip()) + _INDENT) % columns
    indent = " " * min(blank, columns // 2)
    row: list[Fragment] = []
    used, goes_on = 0, item.continues
    for word, role in _split_words(item.fragments, columns - len(indent)):
        size = cell_len(word)
        if used + size > columns and not word.strip():
            continue
        if used + size > columns:
            yield Line(tuple(row), item.target, goes_on)
            goes_on = True
            word = word.lstrip()  # drop the blank at the line break
            row, used, size = [(indent, "")], len(indent), cell_len(word)
        row.append((word, role))
        used += size
    yield Line(tuple(row), item.target, goes_on)


def _split_words(fragments: Iterable[Fragment], columns: int) -> Iterator[Fragment]:
    """Yield words with the blanks before them. A word that is longer than a line is split."""
    for text, role in fragments:
        for word in _WORD.findall(text):
            parts = _broken(word, columns) if cell_len(word) > columns else [word]
            yield from ((part, role) for part in parts)


def _broken(word: str, columns: int) -> list[str]:
    """Split a word into parts of at most `columns`: between folders or names, where there are any."""
    made = [""]
    for part in chain.from_iterable(chop_cells(part, columns) for part in _PART.findall(word)):
        if cell_len(made[-1] + part) > columns:
            made.append("")
        made[-1] += part
    return made
