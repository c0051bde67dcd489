"""What `dynadiag compare` measured of the recordings in its folder: the times of calls, from the document beside them.

A document may come from a stranger: what is no number is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.recording.json_values import json_object
from dynadiag.recording.opening import COMPARISON_NAME
from tui.styled_text import one_line

__all__ = ["MeasuredCall", "read_measured_calls"]

_MAX_BYTES = 10_000_000  # of a document


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """The times of a variant's calls in seconds, and its speed against the uncompiled call (above 1: faster)."""

    variant: str
    first: float | None
    warm: float | None
    ratio: float | None
    noise: bool
    pays_after: int | None


def read_measured_calls(recordings: Sequence[Path]) -> Mapping[Path, MeasuredCall]:
    """Return what was measured, by recording: empty for recordings of no comparison."""
    found = (pair for folder in {path.parent for path in recordings} for pair in _in_folder(folder))
    known = dict(found)
    return {path: known[path] for path in recordings if path in known}


def _in_folder(folder: Path) -> Iterator[tuple[Path, MeasuredCall]]:
    document = folder / COMPARISON_NAME
    try:
        text = document.read_text() if document.stat().st_size <= _MAX_BYTES else ""
    except (OSError, UnicodeDecodeError):  # this folder is none of a comparison
        return
    told = json_object(text).get("rows")
    rows = [row for row in (told if isinstance(told, list) else []) if isinstance(row, dict)]
    several = len({str(row.get("name")) for row in rows}) > 1
    for row in rows:
        if isinstance(name := row.get("recording"), str):
            yield folder / Path(name).name, _measured(row, named=several)


def _measured(row: Mapping[str, Any], *, named: bool) -> MeasuredCall:
    """A row of the document; ``named``: the variants are of several functions."""
    speed = row.get("against_eager")
    against = speed if isinstance(speed, dict) else {}
    warm, pays_after = row.get("warm_call"), against.get("pays_after")
    return MeasuredCall(
        variant=one_line(f"{row.get('name')}: {row.get('variant')}" if named else str(row.get("variant"))),
        first=_number(row.get("first_call")),
        warm=_number(warm.get("median") if isinstance(warm, dict) else None),
        ratio=_number(against.get("ratio")),
        noise=against.get("noise") is True,
        pays_after=pays_after if isinstance(pays_after, int) else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value < float("inf") else None
