"""Write a recording: one transaction into a temporary file, which is renamed when it is complete.

Data that is derived on request from a complete recording (stages of kernels, times) is added to it later.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import zstandard

from dynadiag.errors import DynadiagError, UnwritableOutput
from dynadiag.recording.record_mapping import FieldError
from dynadiag.recording.records import Break
from dynadiag.recording.schema import APPLICATION_ID, RECORD_TABLES, TABLES, VERSION, mapping_of

_PRAGMAS = (
    "PRAGMA page_size = 8192",
    "PRAGMA journal_mode = OFF",  # nobody reads the file before it is complete; a failure removes it
    "PRAGMA synchronous = OFF",  # `atomic_write` flushes the file once, at the end
    "PRAGMA locking_mode = EXCLUSIVE",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
DERIVED_TABLE = next(table for table in TABLES if table.name == "made")  # its name in files since version 3
_MAX_BYTES = 64 << 20  # bytes of one value, whatever the file claims; a kernel's stages take a hundredth of it
_TIMEOUT = 2.0  # seconds to wait for another process that writes to the same file


@contextmanager
def atomic_write(output: Path, force: bool) -> Iterator[Path]:
    """Yield a temporary path beside `output` that is renamed to `output` at the end, or removed when the body raises.

    What it replaces stays as it is until then, and its permissions are kept. Raises `DynadiagError` if `output` exists
    and `force` is false, or if its folder is missing, and `UnwritableOutput` if the system refuses to write.
    """
    if not force and os.path.lexists(output):
        raise _exists(output)
    if not output.parent.is_dir():
        raise DynadiagError(f"{output}: there is no folder {output.parent}")
    scratch = output.with_name(f".{output.name[:100]}.{os.urandom(6).hex()}.part")
    try:
        yield scratch
        _flush(scratch)
        _publish(scratch, output, force)
    except OSError as error:
        raise UnwritableOutput(f"cannot write {output}: {error.strerror or error}") from error
    except sqlite3.Error as error:  # a full disk, a folder without permission
        raise UnwritableOutput(f"cannot write {output}: {error}") from error
    finally:
        scratch.unlink(missing_ok=True)


def _publish(scratch: Path, output: Path, force: bool) -> None:
    """Give a complete file its name. Without ``force`` it replaces nothing, whoever made the other file meanwhile."""
    if force:
        with suppress(FileNotFoundError):
            scratch.chmod(stat.S_IMODE(output.stat().st_mode))
        scratch.replace(output)
        return
    try:
        os.link(scratch, output)
    except FileExistsError:
        raise _exists(output) from None
    except OSError:  # a file system without hard links
        if os.path.lexists(output):
            raise _exists(output) from None
        scratch.replace(output)


def _exists(output: Path) -> DynadiagError:
    return DynadiagError(f"{output} already exists: give another name with -o, or --force to replace it")


def _flush(path: Path) -> None:
    """Flush `path` to disk: the journal that it was made from may be removed next."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RecordingWriter:
    """A new recording while it is written.

    As a context manager it is complete when the body ends without an exception.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        try:
            for statement in (*_PRAGMAS, "BEGIN", *(table.ddl() for table in TABLES)):
                self._database.execute(statement)
        except sqlite3.Error:  # a full disk
            self._database.close()
            raise
        self._inserts = {table.name: table.insert() for table in TABLES}
        self._totals: Counter[str] = Counter()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._database.close()

    def block(self, index: int, data: bytes) -> None:
        """Add one compressed block of the log."""
        self._database.execute(self._inserts["block"], (index, data))

    def events(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows of the table `event`, with values in column order."""
        self._database.executemany(self._inserts["event"], rows)

    def add(self, record: object) -> None:
        """Add a typed record. Raises `FieldError` if a field has a value that its annotation does not allow."""
        row = mapping_of(type(record)).row(record)
        name = RECORD_TABLES[type(record)].name
        self._database.execute(self._inserts[name], row)
        self._totals[name] += 1
        if isinstance(record, Break):
            self.add(record.facts)

    def log(self, name: str, size: int, block_size: int, events: int, unparsed_lines: int) -> None:
        """Describe the log that the recording is made from."""
        self._database.execute(self._inserts["log"], (name, size, block_size, events, unparsed_lines))

    def counts(self, counts: Mapping[str, int]) -> None:
        """Set the number of events of each kind."""
        self._database.executemany(self._inserts["count"], counts.items())

    def _finish(self) -> None:
        """Make the indexes and commit. To index a full table costs a third of indexing row by row."""
        self._database.executemany(self._inserts["total"], self._totals.items())
        for table in TABLES:
            for statement in table.indexes:
                self._database.execute(statement)
        self._database.execute("COMMIT")


def save_derived(recording: Path, key: str, value: Any) -> bool:
    """Save `value` as JSON under `key` in the recording.

    Returns False if the file cannot be written, or was made by a version without this table.
    """
    packed = zstandard.ZstdCompressor().compress(orjson.dumps(value))
    try:
        database = sqlite3.connect(recording.absolute().as_uri() + "?mode=rw", uri=True, timeout=_TIMEOUT)
    except sqlite3.Error:
        return False
    try:
        with database:
            database.execute(DERIVED_TABLE.insert("INSERT OR REPLACE"), (key, packed))
    except sqlite3.Error:
        return False
    finally:
        database.close()
    return True


def load_derived(packed: bytes) -> Any:
    """Return a saved value. Raises `FieldError` if it is damaged. Its decompressed size is checked first."""
    size = zstandard.frame_content_size(packed)
    if not 0 <= size <= _MAX_BYTES:
        raise FieldError(f"a saved value of {size} bytes")
    try:
        return orjson.loads(zstandard.ZstdDecompressor().decompress(packed, max_output_size=size))
    except ValueError as error:
        raise FieldError("a saved value is not JSON") from error
