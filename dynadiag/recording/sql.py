"""A query of the reader's own, which can read the tables of a recording and nothing else."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from dynadiag.errors import DynadiagError
from dynadiag.recording.database import Database
from dynadiag.recording.untrusted_sqlite import printable

_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_STEPS = 20_000  # of SQLite's machine between two looks at the clock: some milliseconds


class QueryResult(NamedTuple):
    """The names of the columns, and the rows."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


def run_query(
    database: Database,
    query: str,
    values: Sequence[object] = (),
    *,
    seconds: float = 60.0,
    limit: int | None = None,
    size: int | None = None,
) -> QueryResult:
    """Run one ``SELECT``, and return up to ``limit`` rows.

    A thousand rows can be gigabytes: the row with which the values exceed ``size`` characters and bytes is the last.
    Raises `DynadiagError` if SQLite refuses it, if it does anything but read, or if it takes longer than ``seconds``.
    Ctrl-C ends it.
    """
    if not isinstance(query, str):
        raise DynadiagError(f"sql: the query is of type {type(query).__qualname__}; give a SELECT as text")
    ends = time.monotonic() + seconds
    with database.reading():
        connection = database.connection
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
        # Closing interrupts what runs, and not what is about to begin.
        connection.set_progress_handler(lambda: database.is_closed or time.monotonic() > ends, _STEPS)
        try:
            cursor = connection.execute(query, tuple(values))
            rows = _read(cursor, limit, size)
            names = tuple(str(column[0]) for column in cursor.description or ())
            cursor.close()
        except (sqlite3.Error, sqlite3.Warning) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT and time.monotonic() <= ends:
                raise  # another thread closed the recording, which `reading` says
            raise DynadiagError(f"sql: {_reason(error, seconds)}") from error
        finally:
            connection.set_progress_handler(None, 0)
            connection.set_authorizer(None)
    return QueryResult(names, rows)


def _read(cursor: sqlite3.Cursor, limit: int | None, size: int | None) -> list[tuple[object, ...]]:
    rows = list[tuple[object, ...]]()
    read = 0
    for row in islice(cursor, limit):
        rows.append(row)
        read += sum(len(value) for value in row if isinstance(value, str | bytes))
        if size is not None and read > size:
            break
    return rows


def _reason(error: Exception, seconds: float) -> str:
    if re.search("interrupted", str(error)):
        return f"the query took more than {seconds:.0f} s: select fewer rows"
    if re.search("not authorized|prohibited|attempt to write|readonly", str(error)):
        return "only a SELECT can be run on a recording"
    return f"{printable(error)} (`SELECT name, sql FROM sqlite_schema` lists the tables)"
