"""Searching in lines: plain text, small letters match large ones too unless the pattern has a large one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Finder"]

_SPANS = 50  # matches marked on one line


@dataclass(frozen=True, slots=True)
class Finder:
    """What is looked for. An empty pattern finds nothing."""

    pattern: str = ""

    def matches(self, text: str) -> bool:
        return bool(self.pattern) and self.pattern in self._folded(text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the pattern stands in a text."""
        if not self.matches(text):
            return []
        folded, found, start = self._folded(text), list[tuple[int, int]](), 0
        while len(found) < _SPANS and (start := folded.find(self.pattern, start)) >= 0:
            found.append((start, start + len(self.pattern)))
            start += len(self.pattern)
        return found

    def next(
        self, text_of: Callable[[int], str], count: int, start: int, way: int, *, here: bool = False
    ) -> int | None:
        """The nearest line that matches, from `start` in direction `way` and round the end, or ``None``."""
        for step in range(0 if here else 1, count + 1):
            index = (start + way * step) % count
            if self.matches(text_of(index)):
                return index
        return None

    def _folded(self, text: str) -> str:
        return text if self.pattern != self.pattern.lower() else text.lower()
