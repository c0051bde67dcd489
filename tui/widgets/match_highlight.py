"""Highlights the matches of a search in a line."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.text_match import TextMatcher

__all__ = ["highlight_matches"]


def highlight_matches(strip: Strip, finder: TextMatcher, style: Style) -> Strip:
    """Return the strip with the matches of the search in `style`."""
    text = strip.text
    spans = finder.spans(text)
    if not spans:
        return strip
    if not text.isascii():
        spans = [(strip.index_to_cell_position(first), strip.index_to_cell_position(last)) for first, last in spans]
    cuts = sorted({place for span in spans for place in span} | {strip.cell_length})
    pieces, start = [], 0
    for end, piece in zip(cuts, strip.divide(cuts), strict=False):
        inside = any(first <= start < last for first, last in spans)
        pieces.append(Strip([Segment(s.text, (s.style or Style()) + style) for s in piece]) if inside else piece)
        start = end
    return Strip.join(pieces)
