"""The SQLite file of a recording, opened read-only and checked, because a stranger may have made it.

Nothing in the file can run: extensions are off, and the schema must be exactly ours (no views, triggers or virtual
tables) before anything is read. Any defect of the file raises `UnreadableInput`.
"""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import zstandard

from dynadiag.errors import UnreadableInput
from dynadiag.recording.packing import is_packed, read_member
from dynadiag.recording.record_mapping import MAX_VALUE, FieldError
from dynadiag.recording.schema import APPLICATION_ID, BLOCK_SIZE, TABLES, VERSION
from dynadiag.recording.untrusted_sqlite import SQLITE_MAGIC, connect_read_only, declared_size, printable, restrict

R = TypeVar("R")


class Database:
    """An open file with our tables, or a recording of a packed job in memory. Any thread may read from it."""

    path: Path
    connection: sqlite3.Connection
    version: int  # schema version of the file
    is_closed: bool

    def __init__(self, path: Path) -> None:
        """Open the file at `path`. Raises `UnreadableInput`."""
        self.path = path
        self._lock, self.is_closed = threading.RLock(), False
        packed = read_member(path.parent, path.name) if is_packed(path.parent) else None
        if packed is None:
            _check_file(path)
        with self.reading():
            self.connection = _connect(path) if packed is None else _connect_packed(packed.tables)
        try:
            self._check_schema(path.stat().st_size if packed is None else len(packed.tables))
            if packed is not None:
                self._add_log(packed.log)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. A read of another thread ends with `UnreadableInput`: closing below it would crash Python."""
        if not self.is_closed:
            self.is_closed = True
            self.connection.interrupt()
        with self._lock:
            self.connection.close()

    def execute(self, query: str, values: tuple[object, ...] | list[str] = ()) -> sqlite3.Cursor:
        """Run a query. Call it inside `reading`."""
        return self.connection.execute(query, values)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn every error that a damaged file causes into `UnreadableInput`. All reads go through here."""
        try:
            with self._lock:
                yield
        except (sqlite3.Error, zstandard.ZstdError, FieldError, UnicodeError, OverflowError) as error:
            reason = f"a damaged recording ({printable(error)})"
            if self.is_closed:
                reason = "closed while it was read"
            elif getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                reason = "another program has locked it: end that one, or read a copy"
            raise UnreadableInput(f"{self.path}: {reason}") from error

    def single_row(self, found: tuple[R, ...], what: str) -> R:
        """Return the single row of `found`. Raises `UnreadableInput` unless there is exactly one."""
        if len(found) != 1:
            raise UnreadableInput(f"{self.path}: a damaged recording ({len(found)} rows of {what}, not 1)")
        return found[0]

    def tables_image(self) -> bytes:
        """Return the tables without the log, as the bytes of an SQLite file."""
        with self.reading():
            copy = sqlite3.connect(":memory:", isolation_level=None)
            try:
                self.connection.backup(copy)
                copy.execute("DELETE FROM block")
                copy.execute("VACUUM")
                return copy.serialize()
            finally:
                copy.close()

    def _add_log(self, log: bytes) -> None:
        """Fill the table of blocks of a recording in memory."""
        blocks = (log[start : start + BLOCK_SIZE] for start in range(0, len(log), BLOCK_SIZE))
        compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        with self.reading():
            rows = ((number, compressor.compress(block)) for number, block in enumerate(blocks))
            self.connection.executemany("INSERT INTO block VALUES (?, ?)", rows)
            self.connection.execute("PRAGMA query_only = ON")

    def _check_schema(self, file_size: int) -> None:
        with self.reading():
            (application,) = self.connection.execute("PRAGMA application_id").fetchone()
            (version,) = self.connection.execute("PRAGMA user_version").fetchone()
            size = declared_size(self.connection)
        self.version: int = version
        if application != APPLICATION_ID:
            raise UnreadableInput(f"{self.path}: an SQLite file, but not a recording of dynadiag")
        if version > VERSION:
            raise UnreadableInput(
                f"{self.path}: made by a newer dynadiag (schema {version}, this one reads up to {VERSION}): upgrade it"
            )
        if size != file_size:
            raise UnreadableInput(f"{self.path}: a damaged recording (cut short or added to: {size} bytes expected)")
        self._check_tables()

    def _check_tables(self) -> None:
        """Raise `UnreadableInput` unless the schema is ours, word for word.

        A view or a generated column would run code of whoever made the file.
        """
        with self.reading():
            rows = self.connection.execute("SELECT type, name, rootpage, sql FROM sqlite_schema").fetchall()
        statements = {name: sql for kind, name, root, sql in rows if kind == "table" and root}
        foreign = [name for kind, name, root, _ in rows if kind not in ("table", "index") or not root]
        changed = [one.name for one in TABLES if one.since <= self.version and statements.get(one.name) != one.ddl()]
        if foreign or changed:
            names = printable(", ".join(map(str, foreign + changed)))
            raise UnreadableInput(f"{self.path}: a damaged recording (its schema differs in {names})")


def _check_file(path: Path) -> None:
    """Refuse a file that is not SQLite before SQLite opens it (a pipe would block)."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableInput(f"{path}: not a file")
        with path.open("rb") as file:
            magic = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    if not magic:
        raise UnreadableInput(f"{path}: not a recording: the file is empty")
    if magic != SQLITE_MAGIC and path.suffix == ".py":
        raise UnreadableInput(f"{path}: a program, not a recording (`dynadiag explain` runs and records it)")
    if magic != SQLITE_MAGIC:
        raise UnreadableInput(f"{path}: not a recording (`dynadiag import` converts a TORCH_TRACE log to one)")


def _connect(path: Path) -> sqlite3.Connection:
    database = connect_read_only(path, any_thread=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    return database


def _connect_packed(tables: bytes) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.deserialize(tables)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    restrict(database)
    return database
