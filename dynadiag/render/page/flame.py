"""The flame graph of a page: the timed sections of a run's compiles, each above the sections that it is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.caches import TimedSection, timed_sections
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile
from dynadiag.render.clean import clean_line

__all__ = ["FlameBox", "flame_boxes", "flame_document", "has_sections"]

_MAX_BOXES = 4000  # the longest ones: what is shorter could not be seen before it is zoomed to, and elements cost time


@dataclass(frozen=True, slots=True)
class FlameBox:
    """A section. ``start`` is in seconds of compiling: what the program does in between is left out.

    ``level`` is 0 for a section in no other. Sections that ran side by side have levels of their own.
    """

    level: int
    start: float
    section: TimedSection

    @property
    def seconds(self) -> float:
        """The length of the section."""
        return self.section.end - self.section.start


def has_sections(recording: Recording) -> bool:
    """Whether torch logged times."""
    return bool(recording.counts().get("chromium_event"))


def flame_boxes(sections: Iterable[TimedSection]) -> Iterator[FlameBox]:
    """Place each section above those that were open when it began, in the order of their beginnings."""
    open_: list[FlameBox] = []
    idle = end = 0.0
    for each in sorted(sections, key=lambda one: (one.start, -one.end)):
        open_ = [box for box in open_ if box.section.end > each.start]
        if not open_:
            idle += max(0.0, each.start - end)
        box = FlameBox(max((box.level + 1 for box in open_), default=0), each.start - idle, each)
        open_.append(box)
        end = max(end, each.end)
        yield box


def flame_document(recording: Recording, compiles: Sequence[Compile]) -> str:
    """The boxes as JSON, for the page's script: rows of level, start, seconds, own seconds, name, phase, compile."""
    boxes = list(flame_boxes(timed_sections(recording)))
    functions = {each.compile_id: clean_line(each.function) for each in compiles}
    shown = sorted(sorted(boxes, key=lambda box: -box.seconds)[:_MAX_BOXES], key=lambda box: (box.start, box.level))
    return json.dumps(
        {
            "seconds": max((box.start + box.seconds for box in boxes), default=0.0),
            "boxes": [_row(box, functions) for box in shown],
            "left_out": len(boxes) - len(shown),
        }
    )


def _row(box: FlameBox, functions: Mapping[str, str]) -> list[object]:
    """The outermost section of a compile is called as its function is."""
    made = box.section
    function = functions.get(made.compile_id) if made.outermost else None
    compile_id = "" if made.compile_id == "-" else made.compile_id
    times = (round(value, 6) for value in (box.start, box.seconds, made.own))
    return [box.level, *times, function or clean_line(made.name), made.phase, compile_id]
