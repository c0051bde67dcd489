"""Text search in the log of a recording, one block at a time. Only events that contain the text are looked up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from dynadiag.errors import UnreadableInput
from dynadiag.recording.reader import EventSpan, Recording

_OVERLAP_BYTES = 1024  # bytes kept of the previous block: a match, and its line, may cross the border
_CONTEXT_BYTES, _MAX_EXCERPT_BYTES = 20, 300  # bytes of a line: before the match, and in all
_MAX_LINES_PER_EVENT = 50  # lines reported of one event, as a dump may contain the text on every line
_PAGE_EVENTS = 200  # events read at once


@dataclass(frozen=True, slots=True)
class LogMatch:
    """A line of the log that contains the text. ``line`` counts from 1 in the payload; 0 is the event's header."""

    span: EventSpan
    line: int
    text: str


def search_log(recording: Recording, pattern: str) -> Iterator[tuple[int, LogMatch | None]]:
    """Yield the number of bytes searched with each matching line, and with ``None`` at the end of each block.

    A lower-case pattern ignores the case of ASCII letters. Raises `UnreadableInput`.
    """
    scanner = _BlockScanner(recording, pattern)
    for block in recording.raw():
        for seen in scanner.block(block):
            yield scanner.start, seen
        scanner.finish(block)
        yield scanner.start, None


class _BlockScanner:
    def __init__(self, recording: Recording, pattern: str) -> None:
        self._recording = recording
        self._needle = pattern.encode("utf-8", "replace")[: _OVERLAP_BYTES // 2]
        self._ignore_case = pattern == pattern.lower()
        self._text = b""  # the end of the previous block, then this block
        self._base = 0  # offset of `_text` in the log
        self._lines = 0  # newlines before `_base`
        self.start = 0  # offset of the block: the number of bytes searched
        self._page: list[EventSpan] = []
        self._border_event: tuple[int, int] | None = (
            None  # the event that crosses the border, and the newlines before its payload
        )
        self._last_reported = (-1, 0)  # the last reported event and line
        self._reported_count = 0  # lines reported of that event

    def block(self, data: bytes) -> Iterator[LogMatch]:
        """Yield the matching lines of the next block."""
        tail = len(self._text)
        self._text += data
        folded = self._text.lower() if self._ignore_case else self._text
        place = max(0, tail - len(self._needle) + 1)
        while (place := folded.find(self._needle, place)) >= 0:
            located = self._locate(self._base + place)
            if self._lines_reported_of(located) < _MAX_LINES_PER_EVENT:
                line = self._line(located, self._base + place)
                if self._is_new(located, line):
                    yield LogMatch(located, line, self._excerpt(place))
                end = self._text.find(b"\n", place)
                place = len(self._text) if end < 0 else end
            else:
                place = max(place + 1, located.end - self._base)

    def _lines_reported_of(self, located: EventSpan) -> int:
        """Return how many lines of this event have been reported."""
        return self._reported_count if self._last_reported[0] == located.event.index else 0

    def _is_new(self, located: EventSpan, line: int) -> bool:
        """Whether a line has not been reported yet. A line may continue in the next block and match there too."""
        here = (located.event.index, line)
        if here == self._last_reported:
            return False
        self._reported_count = self._lines_reported_of(located) + 1
        self._last_reported = here
        return True

    def finish(self, data: bytes) -> None:
        """Go on to the next block and keep the end of this one."""
        end = self._base + len(self._text)
        border = self._recording.event_spans(end - 1, 1)
        if border and self._base <= border[0].payload_start <= end:
            self._border_event = (border[0].event.index, self._newlines(border[0].payload_start))
        kept = self._text[-_OVERLAP_BYTES:]
        self._lines += self._text.count(b"\n", 0, len(self._text) - len(kept))
        self._text, self._base, self.start = kept, end - len(kept), self.start + len(data)

    def _locate(self, offset: int) -> EventSpan:
        page = self._page
        if not page or not page[0].start <= offset < page[-1].end:
            page = self._page = self._recording.event_spans(offset, _PAGE_EVENTS)
        if not page:
            raise UnreadableInput(f"{self._recording.path}: a damaged recording (a log without events)")
        return page[max(0, bisect_right(page, offset, key=lambda one: one.start) - 1)]

    def _excerpt(self, place: int) -> str:
        first = self._text.rfind(b"\n", 0, place) + 1
        end = self._text.find(b"\n", place)
        cut = max(first, place - _CONTEXT_BYTES)
        shown = self._text[cut : min(len(self._text) if end < 0 else end, cut + _MAX_EXCERPT_BYTES)].removeprefix(b"\t")
        return ("…" if cut > first else "") + shown.decode("utf-8", "replace").lstrip("\ufffd")

    def _line(self, located: EventSpan, offset: int) -> int:
        if offset < located.payload_start:
            return 0
        if located.payload_start >= self._base:
            before = self._newlines(located.payload_start)
        elif self._border_event is not None and self._border_event[0] == located.event.index:
            before = self._border_event[1]
        else:
            before = self._newlines(self._base)  # a damaged index: count from the beginning of `_text`
        return self._newlines(offset) - before + 1

    def _newlines(self, offset: int) -> int:
        """Return the number of newlines in the log before an offset in `_text`."""
        return self._lines + self._text.count(b"\n", 0, offset - self._base)
