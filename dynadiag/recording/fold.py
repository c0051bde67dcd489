"""Fold a log into a recording: the journal of our own run, or a ``TORCH_TRACE`` log from anywhere.

The log is read once, block by block, so that memory does not grow with it. A thread compresses each block (zstd
releases the GIL) while its events are indexed and given to the digest, which turns them into typed records.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import zstandard

from dynadiag.errors import UnreadableInput
from dynadiag.recording.digest.digest import Digest
from dynadiag.recording.log import NOISE_KIND, LogParser, RawEvent, event_kind, event_time, parse_metadata, payload_text
from dynadiag.recording.record_mapping import FieldError
from dynadiag.recording.records import COMPILED_AUTOGRAD, Event, Record, Run
from dynadiag.recording.schema import BLOCK_SIZE
from dynadiag.recording.store import RecordingWriter, atomic_write

MAX_DIGEST_PAYLOAD = 16 << 20  # bytes of one payload that a digest can read, to bound its memory
_MAX_KINDS = 1000  # kinds that are counted; torch has about a hundred, so a log with more is not torch's
_MAX_NAME = 1000  # characters of a name in the index; the event has the full name
_ZSTD_LEVEL = 3  # see docs/notes/recording-compression.md
_MAX_PENDING = 4  # blocks compressed at once

Row = tuple[int, str, str | None, str, int | None, str | None, int, int, int]


def fold(log: Path, recording: Path, *, force: bool = False) -> None:
    """Make a recording of `log`. It appears complete or not at all. `log` is not changed.

    Raises `UnreadableInput` if `log` has no event, `DynadiagError` if `recording` exists (without `force`) or cannot be
    written.
    """
    with atomic_write(recording, force) as scratch:
        fold_into(log, scratch)


def fold_into(log: Path, scratch: Path) -> None:
    """Make a recording of `log` in a new file, which is not complete if this raises. Raises `UnreadableInput`."""
    with _open_log(log) as source, RecordingWriter(scratch) as store:
        _Fold(log, source, store).run()


class _LogFile:
    """An open log with its size at that moment. Anything appended later is ignored."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        self.regular = stat.S_ISREG(status.st_mode)

    def __enter__(self) -> _LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, start: int, size: int) -> bytes:
        """Read `size` bytes from `start`, fewer only at the end of the file."""
        parts = []
        while size > 0 and (part := os.pread(self._descriptor, size, start)):
            parts.append(part)
            start, size = start + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def blocks(self) -> Iterator[bytes]:
        """Yield consecutive pieces of one block each."""
        for start in range(0, self.size, BLOCK_SIZE):
            if not (piece := self.read(start, min(BLOCK_SIZE, self.size - start))):
                return
            yield piece


def _open_log(log: Path) -> _LogFile:
    try:
        source = _LogFile(log)
    except OSError as error:
        raise UnreadableInput(f"{log}: {error.strerror}") from error
    if not source.regular:
        source.__exit__()
        raise UnreadableInput(f"{log}: not a file")
    return source


class _Fold:
    """The state of one call of `fold`."""

    def __init__(self, log: Path, source: _LogFile, store: RecordingWriter) -> None:
        self._log, self._source, self._store = log, source, store
        self._digest = Digest()
        self._index = 0  # of the next event
        self._noise_lines = 0  # lines that are not part of an event
        self._counts: Counter[str] = Counter()
        self._lost_records = 0  # records that could not be stored
        self._first_loss = ""  # why the first of them could not

    def run(self) -> None:
        """Read the log once, and write the recording."""
        parser, size = LogParser(), 0
        for piece in self._compress_blocks():
            size += len(piece)
            self._store_events(parser.feed(piece))
        self._store_events(parser.finish())
        if self._index == self._counts[NOISE_KIND]:
            raise UnreadableInput(f"{self._log}: not a TORCH_TRACE log: none of its lines is an event")
        self._store_records(self._digest.finish())
        self._store.log(self._log.name, size, BLOCK_SIZE, self._index, self._noise_lines)
        self._store.counts(self._counts)
        self._store.add(self._final_run())

    def _compress_blocks(self) -> Iterator[bytes]:
        """Yield the pieces of the log while a thread compresses them for the store."""
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True, write_content_size=True)
        pending: deque[Future[bytes]] = deque()
        stored = 0
        with ThreadPoolExecutor(1) as pool:
            for piece in self._source.blocks():
                pending.append(_submit(pool, compressor.compress, piece))
                yield piece
                while pending and (len(pending) >= _MAX_PENDING or pending[0].done()):
                    self._store.block(stored, pending.popleft().result())
                    stored += 1
            for block in pending:
                self._store.block(stored, block.result())
                stored += 1

    def _store_events(self, raws: list[RawEvent]) -> None:
        self._store.events([self._event_row(raw) for raw in raws])

    def _event_row(self, raw: RawEvent) -> Row:
        """Give an event to the digest and return its row."""
        index, self._index = self._index, self._index + 1
        metadata = None if raw.header is None else parse_metadata(raw.header)
        if raw.header is None or metadata is None:
            return self._noise_row(index, raw)
        kind = event_kind(metadata)
        name = _event_name(metadata.get(kind))
        kind = self._count_kind(kind)
        compile_id, attempt, time = (
            _compile_id(metadata),
            _counter_or_none(metadata.get("attempt")),
            event_time(raw.header),
        )
        header_size = min(len(raw.header) + 1, raw.size)
        payload_size = raw.size - header_size
        event = Event(index, kind, name, compile_id, attempt, payload_size, time)
        payload = partial(self._payload, raw.start + header_size, payload_size)
        self._store_records(self._digest.event(event, metadata, payload))
        return index, kind, name, compile_id, attempt, time, raw.start, header_size, payload_size

    def _noise_row(self, index: int, raw: RawEvent) -> Row:
        self._noise_lines += max(raw.lines, 1)
        self._counts[NOISE_KIND] += 1
        return index, NOISE_KIND, None, "-", None, None, raw.start, 0, raw.size

    def _count_kind(self, kind: str) -> str:
        kind = kind[:_MAX_NAME]
        if kind not in self._counts and len(self._counts) >= _MAX_KINDS:
            kind = "unknown"
        self._counts[kind] += 1
        return kind

    def _payload(self, start: int, size: int) -> str:
        return payload_text(self._source.read(start, min(size, MAX_DIGEST_PAYLOAD)))

    def _store_records(self, records: Iterable[Record]) -> None:
        """Store the records of the digest."""
        for record in records:
            try:
                self._store.add(record)
            except FieldError as error:
                self._lost_records, self._first_loss = self._lost_records + 1, self._first_loss or str(error)

    def _final_run(self) -> Run:
        run = self._digest.run()
        return replace(run, notes=run.notes + tuple(self._notes()))

    def _notes(self) -> Iterator[str]:
        if self._noise_lines:
            lines = "1 line" if self._noise_lines == 1 else f"{self._noise_lines:,} lines"
            yield f"{lines} of {self._log.name} could not be read as events (they are kept unchanged)."
        if self._lost_records:
            what = "1 record" if self._lost_records == 1 else f"{self._lost_records:,} records"
            yield f"{what} of the log had unexpected values and could not be stored: {self._first_loss}."


def _submit(pool: ThreadPoolExecutor, compress: Callable[[bytes], bytes], piece: bytes) -> Future[bytes]:
    """Compress a piece in the pool, or here where no thread can begin: at the end of the interpreter, or at a limit."""
    try:
        return pool.submit(compress, piece)
    except RuntimeError:
        done = Future[bytes]()
        done.set_result(compress(piece))
        return done


def _event_name(body: object) -> str | None:
    """The name in an event's metadata."""
    name = body.get("name") if type(body) is dict else None
    return name[:_MAX_NAME] if type(name) is str else None


def _compile_id(metadata: dict[str, Any]) -> str:
    """The compile id in torch's own text form (``CompileId.__str__``)."""
    frame, number = _counter_or_none(metadata.get("frame_id")), _counter_or_none(metadata.get("frame_compile_id"))
    autograd = _counter_or_none(metadata.get("compiled_autograd_id"))
    framed = frame is not None and number is not None
    if autograd is not None:
        traced = f"{COMPILED_AUTOGRAD}{autograd}"
        return f"{traced}/{frame}/{number}" if framed else traced
    return f"{frame}/{number}" if framed else "-"


def _counter_or_none(value: object) -> int | None:
    """A counter of torch's, or None if the log has anything else there."""
    return value if type(value) is int and 0 <= value < 1 << 31 else None
