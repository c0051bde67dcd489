"""Where the user is in the browser, and the history of jumps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynadiag.explanation.explanation import Explanation


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


def source_place(file: str | None, line: int | None, compile_id: str | None = None) -> Location:
    """Return where a line of source is on the Code screen: in this compile, else in one that has it."""
    return Location("code", compile_id, document=f"source:{file}" if file else None, line=line)


def source_location_in(explanation: Explanation, recorded: Iterable[str], place: str) -> Location | None:
    """Return the location of ``FILE:LINE`` in the code of the compile that has the line. FILE may be the end of a path.

    `recorded` are the files whose text is in the recording. ``None`` if no such file was recorded, compiled or called.
    """
    name, _, line = place.rpartition(":")
    files = [
        *(item.file for item in explanation.compiles),
        *(item.span.file for item in explanation.findings),
        *(frame.file for item in explanation.compiles for frame in item.user_stack),
        *recorded,
    ]
    for file in files if line.isdecimal() else ():
        if file and (file == name or file.endswith(f"/{name}")):
            return source_place(file, int(line))
    return None


def first_location(explanation: Explanation) -> Location:
    """Return where the Code screen opens: where a compile failed, else at the first compile that has a graph.

    Of a library's function that is the user's line that called it. Where nothing was compiled, the first finding.
    """
    from dynadiag.recording.code_origin import is_user_file  # the first screen does not need it

    for finding in explanation.findings:
        if finding.is_failed_compile and finding.compile_ids:
            return source_place(finding.span.file, finding.span.line, finding.compile_ids[0])
    inside = explanation.packages.inside
    ids = [item.compile_id for item in explanation.compiles if item.outcome == "error"]  # cut short
    ids += [graph.compile_id for graph in explanation.graphs[:1]]
    ids += [item.compile_id for item in explanation.compiles[:1]]
    item = next((each for each in explanation.compiles if each.compile_id in ids[:1]), None)
    if item is not None and item.file and inside(item.file) is not None:
        own = [frame for frame in item.callers if is_user_file(frame.file) and inside(frame.file) is None]
        if own:
            return source_place(own[-1].file, own[-1].line, item.compile_id)
    spans = [] if ids else [finding.own_span for finding in explanation.findings if finding.own_span.file]
    return next((source_place(span.file, span.line) for span in spans), Location("code", next(iter(ids), None)))


class History:
    """The visited locations, as in a web browser: a new jump drops the locations ahead."""

    def __init__(self) -> None:
        self._back: list[Location] = []
        self._forward: list[Location] = []

    def push(self, location: Location) -> None:
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
