"""Read a recording lazily: the typed tables, and the log that they were made from.

A stranger may have made the file. `database` says what is checked when it is opened. Every size in the file is checked
before it is used.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import zstandard

from dynadiag.errors import UnreadableInput
from dynadiag.recording.cache_keys import merge_components, parse_components
from dynadiag.recording.database import Database
from dynadiag.recording.log import parse_metadata, payload_text
from dynadiag.recording.packing import Content
from dynadiag.recording.record_mapping import FieldError, check_type
from dynadiag.recording.records import (
    Break,
    BreakFacts,
    CacheLookup,
    Collective,
    Compile,
    Event,
    Graph,
    GraphNode,
    Guard,
    Kernel,
    KeyComponent,
    Node,
    Recompile,
    Run,
    SkippedFrame,
    SourceFile,
    Symbol,
    Trial,
)
from dynadiag.recording.schema import RECORD_TABLES, mapping_of
from dynadiag.recording.store import DERIVED_TABLE, load_derived

_MAX_PAYLOAD = 256 << 20  # bytes; the largest payload seen so far is a tenth of it
_MAX_BLOCK = 8 << 20  # bytes of log in one block, whatever the file claims
_MAX_BLOCKS_KEPT = 4
_PAGE = 500  # rows fetched at a time
_EVENT = "SELECT id, kind, name, compile_id, attempt, payload_size, time FROM event"

R = TypeVar("R")
C = TypeVar("C", Break, Graph, Guard, Kernel)


@dataclass(frozen=True, slots=True)
class EventSpan:
    """An event and its position in the log: the header line, then the payload."""

    event: Event
    start: int
    header_size: int

    @property
    def payload_start(self) -> int:
        """The offset of its payload."""
        return self.start + self.header_size

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.payload_start + self.event.payload_size


class Recording:
    """An open recording. It is a context manager, and any thread may read from it.

    Opening reads the schema and the row of the run. All else is read on request. Every method raises `UnreadableInput`
    if the file turns out to be damaged.
    """

    path: Path
    run: Run

    def __init__(self, path: Path) -> None:
        """Open the recording at `path`. Raises `UnreadableInput`."""
        self.path = path
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._database = Database(path)
        try:
            self._size, self._block_size, self.unparsed_lines = self._read_log_row()
            self.run = self._database.single_row(self._records(Run), "run")
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Reading afterwards raises `UnreadableInput`."""
        self._database.close()

    # The typed tables

    def records(self, record: type[R]) -> tuple[R, ...]:
        """Return every record of a type, such as `records.Collective`, in the order of its table.

        A recording that is older than the table has none.
        """
        return self._records(record, "ORDER BY rowid")

    def compiles(self) -> tuple[Compile, ...]:
        """Return every compile, in the order in which they began."""
        return self.records(Compile)

    def breaks(self) -> tuple[Break, ...]:
        """Return every graph break: root causes and consequences. One of a recording before version 6 has no facts."""
        facts = {item.index: item for item in self.records(BreakFacts)}
        return tuple(replace(item, facts=facts.get(item.index, item.facts)) for item in self.records(Break))

    def recompiles(self) -> tuple[Recompile, ...]:
        """Return every recompile. Of an older recording the facts of each failure are read from its text."""
        from dynadiag.recording.torch_text.guards import completed  # a tenth of the import time of a recording

        return tuple(
            replace(item, reasons=tuple(completed(each) if each.part == "other" else each for each in item.reasons))
            for item in self.records(Recompile)
        )

    def skipped(self) -> tuple[SkippedFrame, ...]:
        """Return every frame that Dynamo left to Python."""
        return self.records(SkippedFrame)

    def graphs(self, compile_id: str | None = None) -> tuple[Graph, ...]:
        """Return the graphs of one compile, or of all."""
        return self._of_compile(Graph, compile_id)

    def graphs_at(self, stage: str) -> tuple[Graph, ...]:
        """Return the graphs of all compiles at one stage."""
        return self._records(Graph, "WHERE stage = ? ORDER BY id", stage)

    def lowered(self) -> frozenset[str]:
        """Return the ids of the compiles with a graph later than Dynamo's. The graphs themselves are not read."""
        with self._database.reading():
            rows = self._database.execute("SELECT DISTINCT compile_id FROM graph WHERE stage != 'dynamo'").fetchall()
            return frozenset(check_type(compile_id, str) for (compile_id,) in rows)

    def guards(self, compile_id: str | None = None) -> tuple[Guard, ...]:
        """Return the guards of one compile, or of all."""
        return self._of_compile(Guard, compile_id)

    def symbols(self, compile_id: str | None = None) -> tuple[Symbol, ...]:
        """Return the symbolic sizes of one compile, or of all, and the guards and specializations on them."""
        return self._of_compile(Symbol, compile_id)

    def kernels(self, compile_id: str | None = None) -> tuple[Kernel, ...]:
        """Return generated and called kernels of one compile, or of all."""
        return self._of_compile(Kernel, compile_id)

    def cache_lookups(self, compile_id: str | None = None) -> tuple[CacheLookup, ...]:
        """Return the cache lookups of one compile, or of all.

        Recordings of schema versions before 4 have none.
        """
        return self._of_compile(CacheLookup, compile_id)

    def key_components(self, lookup: CacheLookup) -> tuple[KeyComponent, ...]:
        """Return the components of a lookup's key, or none if they were not recorded.

        An event of ours has only the components that AOTAutograd adds. The rest is in the key of the graph below.
        """
        if lookup.event is None:
            return ()
        found = parse_components(self.payload(lookup.event))
        if not found or not self.event(lookup.event).kind.startswith("dynadiag_"):
            return found
        below = next(
            (one for one in self.cache_lookups(lookup.compile_id) if one.cache == "fx_graph" and one.event), None
        )
        return found if below is None else merge_components(found, self.key_components(below))

    def collectives(self) -> tuple[Collective, ...]:
        """Return the collectives that the program issued from Python. Recordings of versions before 4 have none."""
        return self.records(Collective)

    def trials(self) -> tuple[Trial, ...]:
        """Return the trials of a search, in the order in which they ended."""
        return self.records(Trial)

    def nodes(self, graph: int, start: int = 0, limit: int | None = None) -> tuple[Node, ...]:
        """Return nodes of a graph from position `start`. Empty unless the graph was recorded as data."""
        rest = "WHERE graph = ? AND position >= ? ORDER BY position LIMIT ?"
        found = self._records(GraphNode, rest, graph, start, -1 if limit is None else limit)
        return tuple(row.node for row in found)

    def page(self, record: type[R], start: int, limit: int) -> tuple[R, ...]:
        """Return up to `limit` records with an id of at least `start`: a search reads a large table in pages."""
        return self._records(record, "WHERE id >= ? ORDER BY id LIMIT ?", start, limit)

    # The log

    @property
    def log_size(self) -> int:
        """Bytes of the log that the recording was made from, which `raw` yields."""
        return self._size

    def packed_content(self) -> Content:
        """Return the recording in the form in which a packed job stores it."""
        return Content(self.path.name, self._database.tables_image(), b"".join(self.raw()))

    def event_spans(self, offset: int, limit: int) -> list[EventSpan]:
        """Return up to `limit` events, beginning with the one that contains byte `offset` of the log."""
        first, last = 0, self._single_integer("SELECT COALESCE(MAX(id), 0) FROM event")
        while first < last:  # ids and offsets have the same order, so no index on offsets is needed
            middle = (first + last + 1) // 2
            if self._single_integer("SELECT start FROM event WHERE id >= ? ORDER BY id LIMIT 1", middle) <= offset:
                first = middle
            else:
                last = middle - 1
        query = _EVENT.replace(" FROM", ", start, header_size FROM") + " WHERE id >= ? ORDER BY id LIMIT ?"
        with self._database.reading():
            rows = self._database.execute(query, (first, limit)).fetchall()
            return [
                EventSpan(_event_of_row(row[:-2]), check_type(row[-2], int), check_type(row[-1], int)) for row in rows
            ]

    def events(
        self,
        kind: str | None = None,
        name: str | None = None,
        compile_id: str | None = None,
        start: int = 0,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Yield the events that match, in log order, from the `start`-th match on. They are read while you iterate."""
        where, values = _filter(name=name, compile_id=compile_id, kind=kind)
        query = f"{_EVENT} {where} ORDER BY id LIMIT ? OFFSET ?"
        with self._database.reading():
            cursor = self._database.execute(query, (*values, -1 if limit is None else limit, start))
        while rows := self._fetch_events(cursor):
            yield from rows

    def event(self, index: int) -> Event:
        """Return the event with this index. Raises `UnreadableInput` if there is none."""
        with self._database.reading():
            rows = self._database.execute(f"{_EVENT} WHERE id = ?", (index,)).fetchall()
            return _event_of_row(self._database.single_row(tuple(rows), f"event {index}"))

    def metadata(self, event: int) -> dict[str, Any]:
        """Return the JSON object of an event's header. Empty for noise."""
        start, header, _ = self._event_location(event)
        return (parse_metadata(self._read_bytes(start, header)) or {}) if header else {}

    def payload(self, event: int) -> str:
        """Return the text of an event's payload. Empty if it has none."""
        start, header, payload = self._event_location(event)
        return payload_text(self._read_bytes(start + header, payload))

    def source(self, file: str) -> str | None:
        """Return the user's source file as it was when recorded, or ``None`` if it was not recorded."""
        found = self._records(SourceFile, "WHERE file = ? ORDER BY rowid DESC LIMIT 1", file)
        return self.payload(found[0].event) if found else None

    def source_files(self) -> tuple[str, ...]:
        """Return the names of the user's source files that were recorded."""
        return tuple(dict.fromkeys(item.file for item in self._records(SourceFile, "ORDER BY rowid")))

    def sources(self) -> dict[str, str]:
        """Return the user's source files that were recorded, by name."""
        texts = {file: self.source(file) for file in self.source_files()}
        return {file: text for file, text in texts.items() if text is not None}

    def counts(self) -> dict[str, int]:
        """Return the number of events of each kind."""
        with self._database.reading():
            rows = self._database.execute("SELECT kind, events FROM count ORDER BY kind").fetchall()
            return {check_type(kind, str): check_type(events, int) for kind, events in rows}

    def totals(self) -> dict[str, int]:
        """Return the number of records in each table. Empty tables are left out."""
        with self._database.reading():
            rows = self._database.execute("SELECT name, records FROM total ORDER BY name").fetchall()
            return {check_type(name, str): check_type(records, int) for name, records in rows}

    def raw(self) -> Iterator[bytes]:
        """Yield the log that the recording was made from, byte for byte."""
        for index in range(-(-self._size // self._block_size)):
            yield self._block(index)

    def derived(self, key: str) -> Any:
        """Return derived data that `store.save_derived` saved under `key`, or None."""
        if self._database.version < DERIVED_TABLE.since:
            return None
        with self._database.reading():
            rows = self._database.execute(DERIVED_TABLE.select("WHERE key = ?"), (key,)).fetchall()
            return load_derived(check_type(rows[0][1], bytes)) if rows else None

    def has_derived(self) -> bool:
        """Whether anything was derived and saved: stages of kernels, times."""
        if self._database.version < DERIVED_TABLE.since:
            return False
        with self._database.reading():
            return bool(self._database.execute(DERIVED_TABLE.select("LIMIT 1")).fetchall())

    # Internals

    def _records(self, record: type[R], rest: str = "", *values: object) -> tuple[R, ...]:
        if self._database.version < RECORD_TABLES[record].since:
            return ()
        with self._database.reading():
            rows = self._database.execute(RECORD_TABLES[record].select(rest), values)
            read = mapping_of(record).read
            return tuple([read(row) for row in rows])

    def _single_integer(self, query: str, *values: object) -> int:
        with self._database.reading():
            return check_type(
                self._database.single_row(tuple(self._database.execute(query, values).fetchall()), "event")[0], int
            )

    def _of_compile(self, record: type[R], compile_id: str | None) -> tuple[R, ...]:
        if compile_id is None:
            return self.records(record)
        return self._records(record, "WHERE compile_id = ? ORDER BY rowid", compile_id)

    def _fetch_events(self, cursor: sqlite3.Cursor) -> list[Event]:
        with self._database.reading():
            return [_event_of_row(row) for row in cursor.fetchmany(_PAGE)]

    def _read_log_row(self) -> tuple[int, int, int]:
        with self._database.reading():
            rows = self._database.execute("SELECT size, block_size, unparsed_lines FROM log").fetchall()
            size, block, lines = (check_type(cell, int) for cell in self._database.single_row(tuple(rows), "log"))
        if not (0 < block <= _MAX_BLOCK and size >= 0):
            raise UnreadableInput(f"{self.path}: a damaged recording (a log of {size} bytes in blocks of {block})")
        return size, block, lines

    def _event_location(self, event: int) -> tuple[int, int, int]:
        """The position of an event: start, header size, payload size."""
        query = "SELECT start, header_size, payload_size FROM event WHERE id = ?"
        with self._database.reading():
            rows = self._database.execute(query, (event,)).fetchall()
            start, header, payload = (
                check_type(cell, int) for cell in self._database.single_row(tuple(rows), f"event {event}")
            )
        if min(start, header, payload) < 0 or start + header + payload > self._size:
            raise UnreadableInput(f"{self.path}: a damaged recording (event {event} lies outside the log)")
        return start, header, payload

    def _read_bytes(self, start: int, size: int) -> bytes:
        if size > _MAX_PAYLOAD:
            raise UnreadableInput(f"{self.path}: a payload of {size} bytes is more than can be shown; export the log")
        if size == 0:
            return b""
        first, last = start // self._block_size, (start + size - 1) // self._block_size
        whole = b"".join([self._block(index) for index in range(first, last + 1)])
        offset = start - first * self._block_size
        return whole[offset : offset + size]

    def _block(self, index: int) -> bytes:
        with self._database.reading():
            known = self._blocks.get(index)
            if known is None:
                known = self._blocks[index] = self._decompress(index)
                if len(self._blocks) > _MAX_BLOCKS_KEPT:
                    self._blocks.popitem(last=False)
            return known

    def _decompress(self, index: int) -> bytes:
        """Decompress a block of the log. Its size is checked first, so that a zip bomb is refused."""
        rows = self._database.execute("SELECT data FROM block WHERE id = ?", (index,)).fetchall()
        (data,) = self._database.single_row(tuple(rows), f"block {index}")
        size = min(self._block_size, self._size - index * self._block_size)
        if zstandard.frame_content_size(check_type(data, bytes)) != size:
            raise FieldError(f"block {index} does not hold {size} bytes")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)


def by_compile(records: Iterable[C]) -> dict[str, list[C]]:
    """Return records by the id of their compile, in their order."""
    found: dict[str, list[C]] = {}
    for record in records:
        found.setdefault(record.compile_id, []).append(record)
    return found


def _filter(**columns: str | None) -> tuple[str, list[str]]:
    """A WHERE clause over the given columns, the most selective first.

    The first column uses its index. A plus sign keeps SQLite from choosing the index of another column.
    """
    given = [(column, value) for column, value in columns.items() if value is not None]
    terms = [f"{'+' if place else ''}{column} = ?" for place, (column, _) in enumerate(given)]
    return ("WHERE " + " AND ".join(terms) if terms else ""), [value for _, value in given]


def _event_of_row(row: tuple[Any, ...]) -> Event:
    index, kind, name, compile_id, attempt, size, time = row
    return Event(
        check_type(index, int),
        check_type(kind, str),
        None if name is None else check_type(name, str),
        check_type(compile_id, str),
        None if attempt is None else check_type(attempt, int),
        check_type(size, int),
        None if time is None else check_type(time, str),
    )
