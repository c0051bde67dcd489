"""Full-text search of a recording. It searches the tables first, then the log.

An event is looked up only where the text matches, so the speed is that of decompression, also for 500 MB. At any time
memory holds one block of the log, one page of rows, and the hits.
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

MOST = 500  # hits kept of each kind
_PAGE = 1000  # rows read at once


@dataclass(slots=True)
class Hunt:
    """One search. `run` adds to `hits` in a worker thread while a screen shows them."""

    session: Session
    pattern: str
    hits: list[Hit] = field(default_factory=list)
    stage: str = ""  # the table that is being searched, or "log"
    done: int = 0  # bytes of the log searched so far
    over: bool = False  # finished or stopped
    problem: str | None = None  # the error that ended it
    _counts: Counter[str] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def stopped(self) -> bool:
        """Whether the user stopped the search."""
        return self._stop.is_set()

    @property
    def finder(self) -> Finder:
        """The matcher, to highlight the text on the screen."""
        return Finder(self.pattern)

    @property
    def total(self) -> int:
        """Size of the log in bytes."""
        return self.session.recording.log_size

    @property
    def more(self) -> list[str]:
        """The kinds that have more hits than are kept."""
        return [kind for kind, number in self._counts.items() if number > MOST]

    def stop(self) -> None:
        """Stop the search and keep its hits."""
        self._stop.set()

    def run(self) -> None:
        """Search until the end. Raises `UnreadableInput` if the recording is damaged."""
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
