"""What is made of a recording afterwards, on request, and kept in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import orjson
import zstandard

from dynadiag.recording.record_mapping import FieldError
from dynadiag.recording.schema import TABLES

__all__ = ["DERIVED_TABLE", "load_derived", "save_derived"]

DERIVED_TABLE = next(table for table in TABLES if table.name == "made")
_MAX_BYTES = 64 << 20  # bytes of one value, whatever a file claims; a kernel's stages are a hundredth of it
_TIMEOUT = 2.0  # seconds for another process that writes to the same file


def save_derived(recording: Path, key: str, value: Any) -> bool:
    """Keep `value` (JSON) under `key` in the recording; False where its file takes nothing more.

    That is so where it cannot be written, or was made by a version that knew of no such table.
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
    """A kept value. Raises `FieldError` where it is damaged; what it decompresses to is known beforehand."""
    size = zstandard.frame_content_size(packed)
    if not 0 <= size <= _MAX_BYTES:
        raise FieldError(f"a kept value of {size} bytes")
    try:
        return orjson.loads(zstandard.ZstdDecompressor().decompress(packed, max_output_size=size))
    except ValueError as error:
        raise FieldError("a kept value is no JSON") from error
