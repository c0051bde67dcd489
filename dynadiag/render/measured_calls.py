"""The times that `dynadiag compare` measured, as its document beside the recordings has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from dynadiag.recording.opening import COMPARISON_NAME
from dynadiag.render.clean import clean_line

_MAX_BYTES = 10_000_000  # of a document


Positive = Annotated[float, msgspec.Meta(gt=0)]


class _WarmCall(msgspec.Struct, frozen=True):
    median: Positive | None = None


class _Speed(msgspec.Struct, frozen=True):
    """The speed against the uncompiled call, above 1 where it is faster, and after how many calls compiling pays."""

    ratio: Positive | None = None
    noise: bool = False
    pays_after: int | None = None


class MeasuredCall(msgspec.Struct, frozen=True):
    """What `dynadiag compare` measured of a variant, in seconds: a row of its document."""

    variant: str
    name: str = ""  # of the function
    recording: str = ""
    first_call: Positive | None = None
    warm_call: _WarmCall | None = None
    against_eager: _Speed | None = None

    @property
    def warm(self) -> float | None:
        """The time of a warm call; ``None`` of a variant that failed."""
        return self.warm_call.median if self.warm_call is not None else None


class _Comparison(msgspec.Struct, frozen=True):
    rows: list[MeasuredCall]


def read_measured_calls(recordings: Sequence[Path]) -> Mapping[Path, MeasuredCall]:
    """Return the measurements of each recording; none where `compare` did not write it."""
    found = (pair for folder in {path.parent for path in recordings} for pair in _in_folder(folder))
    known = dict(found)
    return {path: known[path] for path in recordings if path in known}


def _in_folder(folder: Path) -> Iterator[tuple[Path, MeasuredCall]]:
    document = folder / COMPARISON_NAME
    try:
        data = document.read_bytes() if document.stat().st_size <= _MAX_BYTES else b""
        rows = msgspec.json.decode(data, type=_Comparison).rows
    except (OSError, msgspec.MsgspecError):  # this folder is none of a comparison
        return
    several = len({row.name for row in rows}) > 1
    for row in rows:
        named = clean_line(f"{row.name}: {row.variant}" if several else row.variant)
        yield folder / Path(row.recording).name, msgspec.structs.replace(row, variant=named)
