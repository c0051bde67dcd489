"""Paths as a reader wants them: relative to where the program ran, where that is shorter."""

from __future__ import annotations

import os.path

from dynadiag.recording.records import Frame, Span
from dynadiag.render.clean import clean_line

__all__ = ["place", "shown", "stack"]

_STACK = 4  # frames of a user stack that are shown: the way in and where it ended


def shown(file: str | None, cwd: str | None) -> str:
    """A file's name to show, safe for a terminal."""
    if not file:
        return "<unknown>"
    if cwd and file.startswith("/"):
        relative = os.path.relpath(file, cwd)
        file = min(relative, file, key=len)
    return clean_line(file)


def place(span: Span, cwd: str | None) -> str:
    """``file:line:column``, the column 1-based as editors take it."""
    parts = [shown(span.file, cwd)]
    if span.line is not None:
        parts.append(str(span.line))
        if span.column is not None:
            parts.append(str(span.column + 1))
    return ":".join(parts)


def stack(frames: tuple[Frame, ...], cwd: str | None) -> list[str]:
    """A user stack, outermost first, its middle left out where it is long."""
    lines = [f"{shown(item.file, cwd)}:{item.line or '?'} in {clean_line(item.function)}" for item in frames]
    if len(lines) <= _STACK:
        return lines
    hidden = len(lines) - _STACK + 1
    return [lines[0], f"({hidden} more frames)", *lines[hidden + 1 :]]
