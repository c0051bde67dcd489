"""The Events screen: the raw log by kind. Payloads are read on demand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import ClassVar

from textual.app import ComposeResult

from dynadiag.errors import UnreadableInput
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Event
from tui.location import Location
from tui.styled_text import Line, line, one_line, printable_code
from tui.views.listing import ListingView
from tui.widgets.ground import Columns
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Column, LazyRows, Row, Table

_PAGE_EVENTS = 100  # events read at once
_MAX_PAGES = 10
_MAX_SHOWN_PAYLOAD = 500  # bytes of a payload that stands in its row
_MILLISECONDS = len("00:00:00.000")
_MAX_PAYLOAD_LINES = 200  # lines of a payload in the detail; enter shows all of it
_DAMAGED_ROW = Row(("?", "", "", "", "damaged"), -1, "error")
_KIND_COLUMNS = (Column("events", numeric=True), Column("kind", max_width=60))


class EventsView(ListingView):
    """Kinds on the left, the events of the selected kind on the right."""

    LAZY: ClassVar[bool] = True
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("#", numeric=True),
        Column("time", max_width=12, spare=1),
        Column("compile", max_width=7),
        Column("bytes", numeric=True),
        Column("kind, name and header", max_width=200),
    )

    def __init__(self) -> None:
        super().__init__()
        self._kind: str | None = None
        self._rows: EventRows | None = None

    def compose(self) -> ComposeResult:
        with Columns(classes="pair"):
            yield Table(_KIND_COLUMNS, id="events-kinds")
            yield Table(self.COLUMNS, lazy=True, id="events-list")
        yield StyledLines(id="events-detail", classes="detail", wrap=True)

    def on_mount(self) -> None:
        self.kinds.border_title = "Kinds"

    @property
    def kinds(self) -> Table:
        return self.query_one("#events-kinds", Table)

    def load(self) -> None:
        self.fetch("kinds", self.session.recording.counts, self._show_kinds)
        super().load()

    def _show_kinds(self, counts: dict[str, int]) -> None:
        rows = [Row((f"{sum(counts.values()):,}", "every kind"), "")]
        ranked = sorted(counts.items(), key=lambda pair: -pair[1])
        self.kinds.show([*rows, *(Row((f"{number:,}", one_line(kind)), kind) for kind, number in ranked)])

    def rows(self) -> EventRows:
        counts = self.session.recording.counts()
        number = sum(counts.values()) if self._kind is None else counts.get(self._kind, 0)
        rows = EventRows(self.session.recording, self._kind, number)
        if number:
            rows[0], rows[number - 1]  # read here, in the worker, what the table shows first
        self._rows = rows
        return rows

    def cursor_moved(self, lines: Lines) -> None:
        if lines is self.kinds:
            key = self.kinds.key
            kind = str(key) if key else None
            if kind != self._kind:
                self._kind = kind
                self.fetch("rows", self.rows, self._show)
            return
        super().cursor_moved(lines)

    def go_to(self, place: Location) -> None:
        if place.item is not None and self._kind is not None:
            self.kinds.move_to(0)
        super().go_to(place)

    def detail(self, key: int | str) -> Sequence[Line]:
        index = int(key)
        event = self.session.recording.event(index)
        metadata = json.dumps(self.session.recording.metadata(index), indent=1, ensure_ascii=False).split("\n")
        made = [line((f"event {index}", "title"), f"  {one_line(event.kind)} {one_line(event.name or '')}")]
        made += [line((printable_code(text), "dim")) for text in metadata[:_MAX_PAYLOAD_LINES]]
        if event.payload_size:
            payload = self.session.recording.payload(index).split("\n")
            made += [Line(), line((f"payload, {event.payload_size:,} bytes", "strong"))]
            made += [line(printable_code(text[:2000])) for text in payload[:_MAX_PAYLOAD_LINES]]
            if len(payload) > _MAX_PAYLOAD_LINES:
                made.append(line((f"{len(payload) - _MAX_PAYLOAD_LINES:,} more lines: enter shows them", "dim")))
        return made

    def target_of(self, key: int | str) -> Location | None:
        event = self.session.recording.event(int(key))
        if not event.payload_size:
            self.notify("this event has no payload")
            return None
        return Location("code", event.compile_id, document=f"event:{event.index}")

    def line_chosen(self, lines: Lines) -> None:
        if lines is self.kinds:
            self.table.focus()
            return
        super().line_chosen(lines)


class EventRows(LazyRows):
    """The rows of a log, read in pages on demand."""

    def __init__(self, recording: Recording, kind: str | None, number: int) -> None:
        page_of = lru_cache(_MAX_PAGES)(self._read)
        row_of = lru_cache(_PAGE_EVENTS)(lambda index: self._row(page_of(index // _PAGE_EVENTS)[index % _PAGE_EVENTS]))
        super().__init__(number, row_of)
        self._recording, self._kind, self._number = recording, kind, number

    def _read(self, page: int) -> list[Event | None]:
        """Return the events of a page. This runs while the screen is drawn, so damage becomes a row and no error."""
        start = page * _PAGE_EVENTS
        limit = min(_PAGE_EVENTS, self._number - start)
        events: list[Event] = []
        with suppress(UnreadableInput):
            if self._kind is None:  # events have no gaps, so this is a lookup and not a scan
                events = [self._recording.event(index) for index in range(start, start + limit)]
            else:
                events = list(self._recording.events(self._kind, start=start, limit=limit))
        return [*events, *[None] * (limit - len(events))]

    def _row(self, event: Event | None) -> Row:
        """Return the row of an event with the begin of its header, or of the payload of one that has no more in it."""
        if event is None:
            return _DAMAGED_ROW
        text = ""
        with suppress(UnreadableInput):
            header = self._recording.metadata(event.index).get(event.kind)
            text = json.dumps(header) if header and header != {"name": event.name} else ""
            if not text and 0 < event.payload_size <= _MAX_SHOWN_PAYLOAD:
                text = self._recording.payload(event.index)
        parts = (event.kind, event.name or "", " ".join(text[:_MAX_SHOWN_PAYLOAD].split()).strip("{} "))
        cells = (
            str(event.index),
            (event.time or "").partition(" ")[2][:_MILLISECONDS],
            one_line(event.compile_id),
            f"{event.payload_size:,}" if event.payload_size else "",
            "  ".join(map(one_line, filter(None, parts))),
        )
        return Row(cells, event.index)
