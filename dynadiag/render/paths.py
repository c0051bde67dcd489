"""Paths as a reader wants them: relative to where the program ran, where that is shorter."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from itertools import groupby

from dynadiag.recording.records import Frame
from dynadiag.render.clean import clean_line
from dynadiag.render.wrap import truncate_middle, width

__all__ = ["fit_path", "relative_path", "short_stack", "source_location"]

_STACK = 4  # frames of a user stack that are shown: the way in and where it ended


def relative_path(file: str | None, cwd: str | None) -> str:
    """A file's name to show, safe for a terminal."""
    if not file:
        return "<unknown>"
    if cwd and file.startswith("/"):
        file = min(os.path.relpath(file, cwd), file, key=len)
    return clean_line(file)


def source_location(file: str | None, line: int | None, column: int | None, cwd: str | None) -> str:
    """``file:line:column``, the column 1-based as editors take it."""
    numbers = [] if line is None else [line] if column is None else [line, column + 1]
    return ":".join([relative_path(file, cwd), *map(str, numbers)])


def fit_path(text: str, columns: int) -> str:
    """A place in at most `columns`: of a path too long its first folders go, because its end tells most.

    >>> fit_path("/usr/lib/python3/site-packages/torch/nn/modules/linear.py:3 in forward", 40)
    '…/nn/modules/linear.py:3 in forward'
    """
    path, sep, rest = text.partition(" in ")
    parts = path.split("/")[-columns:]  # each part takes a column at least
    while width(text) > columns and len(parts) > 1:
        parts = parts[1:]
        text = f"…/{'/'.join(parts)}{sep}{rest}"
    return truncate_middle(text, columns)


def short_stack(frames: Sequence[Frame], cwd: str | None) -> list[str]:
    """A user stack, outermost first, its middle left out where it is long; neighbours that read alike (a frame and
    its generator) are one line."""
    named = (f"{source_location(item.file, item.line, None, cwd)} in {clean_line(item.function)}" for item in frames)
    lines = [line for line, _ in groupby(named)]
    if len(lines) <= _STACK:
        return lines
    hidden = len(lines) - _STACK + 1
    return [lines[0], f"({hidden} more frames)", *lines[hidden + 1 :]]
