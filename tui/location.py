"""Where the user is in the browser, and the history of jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynadiag.explanation.explanation import Explanation

__all__ = ["FILE_VIEW", "History", "Location", "source_location_in"]

FILE_VIEW = "file"  # the view of a location that is a file on disk, named by its document

_MAX_HISTORY = 200  # locations kept


@dataclass(frozen=True, slots=True)
class Location:
    """A location that the browser can go to. ``None`` leaves that part as it is."""

    view: str
    compile_id: str | None = None
    item: int | None = None  # the index of a break, guard, kernel, event, ...
    document: str | None = None  # the key of a document (`tui.documents.DocumentRef`)
    line: int | None = None  # a line of the document, from 1
    rank: int | None = None  # the number of the recording in the folder, from 0


def source_location_in(explanation: Explanation, place: str) -> Location | None:
    """Return the location of ``FILE:LINE`` in the code of a compile. FILE may be the end of a path.

    ``None`` if no compiled function and no finding is in such a file.
    """
    name, _, line = place.rpartition(":")
    compiles = [(item.file, item.compile_id) for item in explanation.compiles]
    found = [(item.span.file, item.compile_ids[0] if item.compile_ids else None) for item in explanation.findings]
    for file, compile_id in (*compiles, *found):
        if file and line.isdecimal() and (file == name or file.endswith(f"/{name}")):
            return Location("code", compile_id, document=f"source:{file}", line=int(line))
    return None


class History:
    """The visited locations, as in a web browser: a new jump drops the locations ahead."""

    def __init__(self) -> None:
        self._back: list[Location] = []
        self._forward: list[Location] = []

    def push(self, location: Location) -> None:
        """Add the location that a jump leaves."""
        if not self._back or self._back[-1] != location:
            self._back.append(location)
        del self._back[:-_MAX_HISTORY]
        self._forward.clear()

    def back(self, here: Location) -> Location | None:
        """Return the previous location, or ``None`` at the beginning."""
        return _step(self._back, self._forward, here)

    def forward(self, here: Location) -> Location | None:
        """Return the location that `back` left, or ``None`` at the end."""
        return _step(self._forward, self._back, here)


def _step(source: list[Location], sink: list[Location], here: Location) -> Location | None:
    while source:
        place = source.pop()
        if place != here:
            sink.append(here)
            return place
    return None
