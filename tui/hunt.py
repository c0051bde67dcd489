"""A search over the whole recording, found as it goes: the typed records first, then the log, byte by byte.

An event of the log is only looked up where the text was found, so that a recording of 500 MB is searched at the speed
of decompression. What is held at once is a block, a page of rows, and the hits.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tui.hits import RECORDS, Hit, log_hit, record_hit
from tui.logscan import scan
from tui.search import Finder
from tui.session import Session

__all__ = ["MOST", "Hunt"]

MOST = 500  # hits of each kind that are kept
_PAGE = 1000  # rows of a table that are held at once


@dataclass(slots=True)
class Hunt:
    """One search. `run` fills `hits` in a worker's thread; whoever shows them reads along."""

    session: Session
    pattern: str
    hits: list[Hit] = field(default_factory=list)
    stage: str = ""  # what is being searched
    done: int = 0  # bytes of the log that were searched
    over: bool = False  # it has come to its end, or was stopped
    problem: str | None = None  # why it could not go on
    _counts: Counter[str] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def finder(self) -> Finder:
        """The same text, for marking it on the screen."""
        return Finder(self.pattern)

    @property
    def total(self) -> int:
        """Bytes of the log."""
        return self.session.recording.log_size

    @property
    def more(self) -> list[str]:
        """The kinds of which there is more than is kept."""
        return [kind for kind, number in self._counts.items() if number > MOST]

    def stop(self) -> None:
        """Stop it; what was found stays."""
        self._stop.set()

    def run(self) -> None:
        """Search to the end. Raises `UnreadableInput` where the recording is damaged."""
        for hit in self._found():
            if self.stopped:
                break
            self._counts[hit.kind] += 1
            if self._counts[hit.kind] <= MOST:
                self.hits.append(hit)

    def _found(self) -> Iterator[Hit]:
        yield from self._records()
        self.stage = "log"
        for done, seen in scan(self.session.recording, self.pattern):
            self.done = done
            if self.stopped:
                return
            if seen is not None:
                yield log_hit(seen, self.session)

    def _records(self) -> Iterator[Hit]:
        finder, cwd = self.finder, self.session.run.cwd
        for kind, record in RECORDS.items():
            self.stage, start = f"{kind}s", 0
            while not self.stopped and self._counts[kind] <= MOST:
                rows = self.session.recording.page(record, start, _PAGE)
                if not rows:
                    break
                start = rows[-1].index + 1
                yield from (hit for row in rows if (hit := record_hit(kind, row, finder, cwd)) is not None)
