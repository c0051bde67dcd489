"""Open SQLite files that a stranger may have made: read-only, and so that nothing in them can run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

SQLITE_MAGIC = b"SQLite format 3\0"  # every SQLite file begins with it
_MAX_CHARS = 200  # characters of an error


def connect_read_only(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    """Open a file so that it is not changed and nothing in it can run. Raises `sqlite3.Error`."""
    uri = path.absolute().as_uri() + "?mode=ro"
    database = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=not any_thread)
    restrict(database)
    database.execute("PRAGMA query_only = ON")
    return database


def restrict(database: sqlite3.Connection) -> None:
    """Switch off what the content of a database could make SQLite do."""
    for statement in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
        database.execute(f"PRAGMA {statement}")


def declared_size(database: sqlite3.Connection) -> int:
    """Return the size in bytes by the file's own header. A file of another size was cut short, or added to."""
    (size,) = database.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
    return int(size)


def printable(error: object) -> str:
    """Return the text of an error, safe for a terminal: SQLite quotes what it could not read."""
    return "".join([char if char.isprintable() else "?" for char in str(error)])[:_MAX_CHARS]
