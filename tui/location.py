"""Where the user is in the browser, and where he was."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FILE", "History", "Location"]

FILE = "file"  # the view of a place that is a file of the user's, named by its document

_MOST = 200  # places kept: more than anybody walks back


@dataclass(frozen=True, slots=True)
class Location:
    """A place that can be gone to. What is ``None`` is left as it is there."""

    view: str
    compile_id: str | None = None
    item: int | None = None  # the index of a break, a guard, a kernel, an event ...
    document: str | None = None  # the key of a document (`tui.documents.Ref`)
    line: int | None = None  # of that document, 1-based
    rank: int | None = None  # of the recordings of a folder, from 0


class History:
    """The places gone through, as in a web browser: a new jump forgets what lay ahead."""

    def __init__(self) -> None:
        self._back: list[Location] = []
        self._forward: list[Location] = []

    def leave(self, place: Location) -> None:
        """Note the place that is left by a jump."""
        if not self._back or self._back[-1] != place:
            self._back.append(place)
        del self._back[:-_MOST]
        self._forward.clear()

    def back(self, here: Location) -> Location | None:
        """The place before `here`; ``None`` at the beginning."""
        return _step(self._back, self._forward, here)

    def forward(self, here: Location) -> Location | None:
        """The place that `back` was called from; ``None`` at the end."""
        return _step(self._forward, self._back, here)


def _step(source: list[Location], sink: list[Location], here: Location) -> Location | None:
    while source:
        place = source.pop()
        if place != here:
            sink.append(here)
            return place
    return None
