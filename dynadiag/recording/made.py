"""What is made of a recording afterwards, on request, and kept in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import orjson
import zstandard

from dynadiag.recording.mapping import FieldError
from dynadiag.recording.schema import TABLES

__all__ = ["MADE", "keep", "unpacked"]

MADE = next(table for table in TABLES if table.name == "made")
_MOST = 64 << 20  # bytes of one value, whatever a file claims; a kernel's stages are a hundredth of it
_PATIENCE = 2.0  # seconds for another process that writes to the same file


def keep(recording: Path, key: str, value: Any) -> bool:
    """Keep `value` (JSON) under `key` in the recording; False where its file takes nothing more.

    That is so where it cannot be written, or was made by a version that knew of no such table.
    """
    packed = zstandard.ZstdCompressor().compress(orjson.dumps(value))
    try:
        database = sqlite3.connect(recording.absolute().as_uri() + "?mode=rw", uri=True, timeout=_PATIENCE)
    except sqlite3.Error:
        return False
    try:
        with database:
            database.execute(MADE.insert("INSERT OR REPLACE"), (key, packed))
    except sqlite3.Error:
        return False
    finally:
        database.close()
    return True


def unpacked(packed: bytes) -> Any:
    """A kept value. Raises `FieldError` where it is damaged; what it decompresses to is known beforehand."""
    size = zstandard.frame_content_size(packed)
    if not 0 <= size <= _MOST:
        raise FieldError(f"a kept value of {size} bytes")
    try:
        return orjson.loads(zstandard.ZstdDecompressor().decompress(packed, max_output_size=size))
    except ValueError as error:
        raise FieldError("a kept value is no JSON") from error
