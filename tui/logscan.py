"""Looking for a text in the log of a recording, a block at a time: no event is parsed but those that hold it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from dynadiag.errors import UnreadableInput
from dynadiag.recording.reader import Located, Recording

__all__ = ["Seen", "scan"]

_TAIL = 1024  # bytes of the block before that are kept: for a text across the border, and the line that it is on
_BEFORE, _SHOWN = 20, 300  # bytes of a line that are shown before what was found, and in all
_OF_ONE = 50  # lines of one event that are told: a dump that holds the text everywhere is one find
_EVENTS = 200  # events looked up at once


@dataclass(frozen=True, slots=True)
class Seen:
    """A line of the log that holds the text. ``line`` counts from 1 in the payload; 0 is the event's header."""

    located: Located
    line: int
    text: str


def scan(recording: Recording, pattern: str) -> Iterator[tuple[int, Seen | None]]:
    """Each line that holds `pattern`, with the bytes searched so far; at each block's end, those alone.

    Small ASCII letters match large ones too, unless the pattern has a large one. Raises `UnreadableInput`.
    """
    scanner = _Scanner(recording, pattern)
    for block in recording.raw():
        for seen in scanner.block(block):
            yield scanner.start, seen
        scanner.finish(block)
        yield scanner.start, None


class _Scanner:
    def __init__(self, recording: Recording, pattern: str) -> None:
        self._recording = recording
        self._needle = pattern.encode("utf-8", "replace")[: _TAIL // 2]
        self._fold = pattern == pattern.lower()
        self._text = b""  # the end of the block before, and the block
        self._base = 0  # where in the log `_text` begins
        self._lines = 0  # newlines of the log before `_base`
        self.start = 0  # where the block begins: bytes that were searched
        self._page: list[Located] = []
        self._open: tuple[int, int] | None = None  # the event across the blocks' border, newlines before its payload
        self._last = (-1, 0)  # the event and the line that were told last
        self._told = 0  # lines of that event that were told

    def block(self, data: bytes) -> Iterator[Seen]:
        """The lines of the next block that hold the text."""
        tail = len(self._text)
        self._text += data
        folded = self._text.lower() if self._fold else self._text
        place = max(0, tail - len(self._needle) + 1)
        while (place := folded.find(self._needle, place)) >= 0:
            located = self._locate(self._base + place)
            if self._told_of(located) < _OF_ONE:
                line = self._line(located, self._base + place)
                if self._is_new(located, line):
                    yield Seen(located, line, self._excerpt(place))
                end = self._text.find(b"\n", place)
                place = len(self._text) if end < 0 else end
            else:
                place = max(place + 1, located.end - self._base)

    def _told_of(self, located: Located) -> int:
        """How many lines of this event were told already."""
        return self._told if self._last[0] == located.event.index else 0

    def _is_new(self, located: Located, line: int) -> bool:
        """Whether a line was not told yet: one that goes on in the next block may hold the text there too."""
        here = (located.event.index, line)
        if here == self._last:
            return False
        self._told = self._told_of(located) + 1
        self._last = here
        return True

    def finish(self, data: bytes) -> None:
        """Go on to the next block; what is needed of this one is kept."""
        end = self._base + len(self._text)
        border = self._recording.located(end - 1, 1)
        if border and self._base <= border[0].payload <= end:
            self._open = (border[0].event.index, self._newlines(border[0].payload))
        kept = self._text[-_TAIL:]
        self._lines += self._text.count(b"\n", 0, len(self._text) - len(kept))
        self._text, self._base, self.start = kept, end - len(kept), self.start + len(data)

    def _locate(self, offset: int) -> Located:
        page = self._page
        if not page or not page[0].start <= offset < page[-1].end:
            page = self._page = self._recording.located(offset, _EVENTS)
        if not page:
            raise UnreadableInput(f"{self._recording.path}: a damaged recording (a log without events)")
        return page[max(0, bisect_right(page, offset, key=lambda one: one.start) - 1)]

    def _excerpt(self, place: int) -> str:
        first = self._text.rfind(b"\n", 0, place) + 1
        end = self._text.find(b"\n", place)
        cut = max(first, place - _BEFORE)
        shown = self._text[cut : min(len(self._text) if end < 0 else end, cut + _SHOWN)].removeprefix(b"\t")
        return ("…" if cut > first else "") + shown.decode("utf-8", "replace").lstrip("\ufffd")

    def _line(self, located: Located, offset: int) -> int:
        if offset < located.payload:
            return 0
        if located.payload >= self._base:
            before = self._newlines(located.payload)
        elif self._open is not None and self._open[0] == located.event.index:
            before = self._open[1]
        else:
            before = self._newlines(self._base)  # a damaged index: the line is counted from what is at hand
        return self._newlines(offset) - before + 1

    def _newlines(self, offset: int) -> int:
        """Newlines of the log before a place in `_text`."""
        return self._lines + self._text.count(b"\n", 0, offset - self._base)
