"""The program's lines, as far as they help to tell which collective a rank left out: statements, and loops."""

from __future__ import annotations

import ast
from functools import cached_property

__all__ = ["ProgramLines"]


class ProgramLines:
    """One file of the program. A file whose text is not known, or is no Python, has no loops."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.splitlines()

    def statement(self, line: int | None) -> str:
        """The text of a line, empty if there is none."""
        return self._lines[line - 1].strip() if line is not None and 0 < line <= len(self._lines) else ""

    def loop_end(self, line: int | None) -> int | None:
        """The last line of the innermost loop around a line."""
        around = [end for begin, end in self._loops if line is not None and begin < line <= end]
        return min(around, default=None)

    @cached_property
    def _loops(self) -> list[tuple[int, int]]:
        try:
            tree = ast.parse(self._text)
        except (SyntaxError, ValueError, RecursionError):
            return []
        loops = (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))
        return [(node.lineno, node.body[-1].end_lineno or node.lineno) for node in loops]
