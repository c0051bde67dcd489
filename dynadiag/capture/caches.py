"""Describes the lookups in torch's caches that the trace does not report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from dynadiag.torch_private import caches as torch_private


def aot_autograd_key_json(emitter: FrameType) -> str | None:
    """Return the key that was looked up in AOTAutograd's cache, in the form of torch's keys of FX graphs.

    None if torch's own event has it.
    """
    components = torch_private.aot_autograd_key(emitter)
    return None if components is None else json.dumps({"components": components})


def describe_cpp_lookups(module: str, started: float) -> Iterator[dict[str, Any]]:
    """Yield the lookups of a generated module in the cache of C++ libraries.

    torch does not report them. A library that is newer than ``started``, the start of this process in seconds since the
    epoch, was built for it: a miss. Its seconds are those from its source to the library, waiting included.
    """
    for name, key, library in torch_private.cpp_libraries(module):
        built = _modified(library)
        missed = built is not None and built >= started
        written = _modified(library.with_suffix(".cpp")) if missed else None
        seconds = None if built is None or written is None else max(0.0, built - written)
        yield {"cache": "cpp", "name": name, "key": key, "outcome": "miss" if missed else "hit", "seconds": seconds}


def describe_pgo_lookup() -> dict[str, Any] | None:
    """Return the lookup of Dynamo's profile. None if there was none."""
    if (found := torch_private.pgo_lookup()) is None:
        return None
    outcome, key = found
    return {"cache": "pgo", "outcome": outcome, "key": key}


def _modified(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None
