"""The recording: one SQLite file with everything that torch.compile reported during a run.

This is the lowest layer: it imports nothing of dynadiag but its errors, and never torch. The names below are loaded on
first use, because the journal runs in the user's process, which must not load SQLite and the rest.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.recording.reader import Recording

__all__ = ["EventDigest", "ImportResult", "Journal", "Recording", "export_log", "import_log", "open"]

_WHERE = {
    "EventDigest": "dynadiag.recording.fold",
    "ImportResult": "dynadiag.recording.import_export",
    "Journal": "dynadiag.recording.journal",
    "Recording": "dynadiag.recording.reader",
    "export_log": "dynadiag.recording.import_export",
    "import_log": "dynadiag.recording.import_export",
}


def open(path: str | Path) -> Recording:  # noqa: A001 - `dynadiag.recording.open`, as `gzip.open` is
    """Open a recording for reading. Raises `dynadiag.errors.UnreadableInput`."""
    from dynadiag.recording.reader import Recording

    return Recording(Path(path))


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dynadiag.recording' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
