"""Many recordings in one file: a packed job, in which recordings that are nearly the same are stored as differences.

A packed job is an SQLite file with one row for each recording: its tables without the log, and the log. Both are
compressed with those of an earlier recording, the base, as dictionary. So a rank that did what another one did needs
little more than its timestamps. A recording in ``job.dynadiag`` has the path ``job.dynadiag/NAME``, and everything that
opens a recording opens it there; nothing is written to disk.

Writing and reading each need the memory of two recordings, whatever the number of recordings.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import zstandard

from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.recording.untrusted_sqlite import SQLITE_MAGIC, connect_read_only, declared_size, printable

APPLICATION_ID = 0x64796E70  # "dynp"
_TABLE = (
    'CREATE TABLE "member" ("id" INTEGER PRIMARY KEY, "name" TEXT NOT NULL UNIQUE, "base" INTEGER, '
    '"tables_size" INTEGER NOT NULL, "tables" BLOB NOT NULL, "log_size" INTEGER NOT NULL, "log" BLOB NOT NULL)'
)
_MAX_SIZE = 1 << 30  # bytes of one recording's tables or log, whatever the file claims
_MAX_WINDOW = 1 << 31
_MAX_BASES = 4  # the latest recordings without a base, which are tried as base of the next
_MIN_GAIN = 3  # a base is used if it makes a recording this many times smaller
_LEVEL = 3
_NAME_CHARS = frozenset("-_.+@=,")


@dataclass(frozen=True, slots=True)
class Content:
    """One recording: its name (a file name), the bytes of its tables as an SQLite file, and its log."""

    name: str
    tables: bytes
    log: bytes


def is_packed(path: Path) -> bool:
    """Whether a file is a packed job."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            head = file.read(72)
    except OSError:
        return False
    return head.startswith(SQLITE_MAGIC) and head[68:72] == APPLICATION_ID.to_bytes(4, "big")


def write_packed(contents: Iterable[Content], output: Path) -> None:
    """Write a packed job to a new file. Raises `DynadiagError` if a recording is too large."""
    database = sqlite3.connect(output, isolation_level=None)
    try:
        for statement in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "BEGIN", _TABLE):
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        bases: dict[int, Content] = {}
        for number, content in enumerate(contents):
            if max(len(content.tables), len(content.log)) > _MAX_SIZE:
                raise DynadiagError(f"{content.name}: a recording of more than {_MAX_SIZE >> 20} MB cannot be packed")
            base, tables, log = _compress_best(content, bases)
            row = number, content.name, base, len(content.tables), tables, len(content.log), log
            database.execute("INSERT INTO member VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            if base is None:
                bases[number] = content
                if len(bases) > _MAX_BASES:
                    del bases[min(bases)]
        database.execute("COMMIT")
    finally:
        database.close()


def _compress_best(content: Content, bases: dict[int, Content]) -> tuple[int | None, bytes, bytes]:
    """The number of the base that is used, or None, and the tables and the log compressed with it."""
    alone = _compress(content.tables, b""), _compress(content.log, b"")
    for number in sorted(bases, reverse=True):
        base = bases[number]
        packed = _compress(content.tables, base.tables), _compress(content.log, base.log)
        if _MIN_GAIN * sum(map(len, packed)) < sum(map(len, alone)):
            return number, *packed
    return None, *alone


def _compress(data: bytes, base: bytes) -> bytes:
    """Compress with a base as dictionary. A hash table with an entry for each of its bytes misses no match."""
    bits = min(max(len(base).bit_length(), 17), 26)
    window = min(max((len(base) + len(data)).bit_length(), 20), 31)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, source_size=len(data), window_log=window, hash_log=bits, chain_log=bits, write_checksum=True
    )
    return zstandard.ZstdCompressor(dict_data=_dictionary(base), compression_params=parameters).compress(data)


def _dictionary(base: bytes) -> zstandard.ZstdCompressionDict | None:
    return zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if base else None


def member_names(packed: Path) -> tuple[str, ...]:
    """Return the names of the recordings in a packed job, in order. Raises `UnreadableInput`."""
    with _reading(packed) as database:
        rows = database.execute("SELECT name FROM member ORDER BY id").fetchall()
    names = tuple(name for (name,) in rows if isinstance(name, str) and _is_file_name(name))
    if not names or len(names) != len(rows):
        raise UnreadableInput(f"{packed}: a damaged packed job (its recordings have no proper names)")
    return names


def _is_file_name(name: str) -> bool:
    return 0 < len(name) < 256 and name[0] != "." and all(char.isalnum() or char in _NAME_CHARS for char in name)


def read_member(packed: Path, name: str) -> Content:
    """Return one recording of a packed job. Raises `UnreadableInput`."""
    with _reading(packed) as database:
        row = database.execute("SELECT id, base FROM member WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise UnreadableInput(f"{packed}: no recording {name} in this packed job")
        number, base = row
        if base is None:
            return _base(packed, packed.stat().st_mtime_ns, number)
        return _read(database, number, _base(packed, packed.stat().st_mtime_ns, base))


@lru_cache(maxsize=2)
def _base(packed: Path, modified: int, number: int) -> Content:  # noqa: ARG001 - part of the key of the cache
    """Read a recording that is stored without a base. The last two are cached, because most others need one of them."""
    with _reading(packed) as database:
        return _read(database, number, None)


def _read(database: sqlite3.Connection, number: int, base: Content | None) -> Content:
    query = "SELECT name, base, tables_size, tables, log_size, log FROM member WHERE id = ?"
    found = database.execute(query, (number,)).fetchone()
    if found is None or (base is None and found[1] is not None):
        raise sqlite3.DatabaseError(f"recording {number} cannot be read without its base")
    name, _, tables_size, tables, log_size, log = found
    return Content(
        name,
        _decompress(tables, tables_size, base.tables if base else b""),
        _decompress(log, log_size, base.log if base else b""),
    )


def _decompress(data: object, size: object, base: bytes) -> bytes:
    """Decompress after a check of the size that the frame claims, so that a zip bomb is refused."""
    if not isinstance(data, bytes) or not isinstance(size, int) or not 0 <= size <= _MAX_SIZE:
        raise sqlite3.DatabaseError("a value of another type")
    if zstandard.frame_content_size(data) != size:
        raise sqlite3.DatabaseError(f"a part does not hold {size} bytes")
    decompressor = zstandard.ZstdDecompressor(dict_data=_dictionary(base), max_window_size=_MAX_WINDOW)
    return decompressor.decompress(data, max_output_size=size, allow_extra_data=False)


@contextmanager
def _reading(packed: Path) -> Iterator[sqlite3.Connection]:
    """Open the file read-only, and turn every error that a damaged file causes into `UnreadableInput`."""
    try:
        database = connect_read_only(packed)
        try:
            schema = database.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
            if schema != [(_TABLE,)]:
                raise sqlite3.DatabaseError("its schema differs")
            if declared_size(database) != packed.stat().st_size:
                raise sqlite3.DatabaseError("cut short or added to")
            yield database
        finally:
            database.close()
    except (sqlite3.Error, zstandard.ZstdError, UnicodeError, OverflowError, MemoryError) as error:
        raise UnreadableInput(f"{packed}: a damaged packed job ({printable(error)})") from error
