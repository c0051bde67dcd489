"""Text search in lines, and its matches in them. A lower-case pattern ignores case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

_MAX_MATCHES = 50  # matches highlighted on one line


@dataclass(frozen=True, slots=True)
class TextMatcher:
    """A text pattern. The empty pattern matches nothing."""

    pattern: str = ""

    def matches(self, text: str) -> bool:
        return bool(self.pattern) and self.pattern in self._folded(text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        if not self.matches(text):
            return []
        folded, found, start = self._folded(text), list[tuple[int, int]](), 0
        while len(found) < _MAX_MATCHES and (start := folded.find(self.pattern, start)) >= 0:
            found.append((start, start + len(self.pattern)))
            start += len(self.pattern)
        return found

    def find_next(
        self, text_of: Callable[[int], str], count: int, start: int, direction: int, *, here: bool = False
    ) -> int | None:
        """Return the nearest matching line from `start` in direction `direction`, wrapping around, or ``None``."""
        for step in range(0 if here else 1, count + 1 if count else 0):
            index = (start + direction * step) % count
            if self.matches(text_of(index)):
                return index
        return None

    def _folded(self, text: str) -> str:
        return text if self.pattern != self.pattern.lower() else text.lower()


def highlight_matches(line: list[Segment], finder: TextMatcher, style: Style) -> list[Segment]:
    """Return the line with the matches of the search in `style`."""
    strip = Strip(line)
    text = strip.text
    spans = finder.spans(text)
    if not spans:
        return line
    if not text.isascii():
        spans = [(strip.index_to_cell_position(first), strip.index_to_cell_position(last)) for first, last in spans]
    cuts = sorted({place for span in spans for place in span} | {strip.cell_length})
    pieces, start = list[Segment](), 0
    for end, piece in zip(cuts, strip.divide(cuts), strict=False):
        inside = any(first <= start < last for first, last in spans)
        pieces += Segment.apply_style(piece, post_style=style) if inside else piece
        start = end
    return pieces
