"""Full-text search of a recording. It searches the tables first, then the log.

An event is looked up only where the text matches, so the speed is that of decompression, also for 500 MB. At any time
memory holds one block of the log, one page of rows, and the hits.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dynadiag.errors import DynadiagError
from dynadiag.recording.log_search import search_log
from dynadiag.recording.records import Kernel
from dynadiag.render.call_costs import read_kernel_costs
from tui.search_hits import RECORD_TYPES, Hit, MadeOf, line_places, log_hit, record_hit
from tui.session import Session
from tui.styled_text import one_line
from tui.text_match import TextMatcher

MAX_HITS = 500  # hits kept of each kind
_PAGE = 1000  # rows read at once
_MAX_KERNELS = 1000  # with more of them, the generated code is not read for their lines


@dataclass(slots=True)
class RecordingSearch:
    """One search. `run` adds to `hits` in a worker thread while a screen shows them."""

    session: Session
    pattern: str
    hits: list[Hit] = field(default_factory=list)
    phase: str = ""  # the table that is being searched, or "log"
    bytes_searched: int = 0  # bytes of the log searched so far
    finished: bool = False  # finished or stopped
    error: str | None = None  # the error that ended it
    _counts: Counter[str] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)
    _places: tuple[int, list[MadeOf]] = (-1, [])  # the event of the graph that was searched last, and its lines
    _kernel_places: dict[str, dict[tuple[int | None, str], str]] = field(default_factory=dict)  # by compile

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def truncated_kinds(self) -> list[str]:
        return [kind for kind, number in self._counts.items() if number > MAX_HITS]

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Search until the end, or until something is damaged."""
        try:
            for hit in self._search():
                if self.stopped:
                    break
                self._counts[hit.kind] += 1
                if self._counts[hit.kind] <= MAX_HITS:
                    self.hits.append(hit)
        except DynadiagError as error:
            self.error = one_line(str(error))
        finally:
            self.finished = True

    def _search(self) -> Iterator[Hit]:
        yield from self._search_records()
        self.phase = "log"
        for done, seen in search_log(self.session.recording, self.pattern):
            self.bytes_searched = done
            if self.stopped:
                return
            if seen is not None:
                yield log_hit(seen, self.session, self._places_of)

    def _search_records(self) -> Iterator[Hit]:
        finder, cwd = TextMatcher(self.pattern), self.session.run.cwd
        for kind, record in RECORD_TYPES.items():
            self.phase, start = f"{kind}s", 0
            while not self.stopped and self._counts[kind] <= MAX_HITS:
                rows = self.session.recording.page(record, start, _PAGE)
                if not rows:
                    break
                start = rows[-1].index + 1
                for row in rows:
                    if (hit := record_hit(kind, row, finder, cwd)) is not None:
                        yield replace(hit, where=self._place_of_kernel(row) or hit.where) if kind == "kernel" else hit

    def _places_of(self, event: int) -> list[MadeOf]:
        if self._places[0] != event:
            self._places = event, line_places(self.session.recording.payload(event), self.session.run.cwd)
        return self._places[1]

    def _place_of_kernel(self, kernel: Kernel) -> str:
        """The program's lines that a kernel computes; unknown in a recording of very many."""
        if self.session.kernel_count > _MAX_KERNELS:
            return ""
        known = self._kernel_places.get(kernel.compile_id)
        if known is None:
            costs = read_kernel_costs(self.session.recording, [kernel.compile_id], self.session.callers)
            known = self._kernel_places[kernel.compile_id] = {key: calls[0].where for key, calls in costs.items()}
        return known.get((kernel.event, kernel.name), "")
