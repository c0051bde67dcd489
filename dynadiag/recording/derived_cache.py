"""Data that is derived from a recording on request and saved in it: stages of kernels, times."""

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
_MAX_BYTES = 64 << 20  # bytes of one value, whatever the file claims; a kernel's stages take a hundredth of it
_TIMEOUT = 2.0  # seconds to wait for another process that writes to the same file


def save_derived(recording: Path, key: str, value: Any) -> bool:
    """Save `value` as JSON under `key` in the recording. Returns False if the file cannot be written.

    That is also so when the file was made by a version without this table.
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
