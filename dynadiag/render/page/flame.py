"""The flame graph of a page: the timed sections of a run's compiles, nested."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.caches import TimedSection, timed_sections
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile
from dynadiag.render.clean import clean_line

__all__ = ["FlameBox", "flame_boxes", "flame_document", "has_sections"]

_MAX_BOXES = 4000  # the longest sections; more elements make the page slow, and shorter ones are too narrow to see


@dataclass(frozen=True, slots=True)
class FlameBox:
    """A section. ``start`` is in seconds of compiling: the time between two compiles is left out.

    ``level`` is 0 for an outermost section. Sections that ran in parallel have different levels.
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
    """Yield a box for each section in the order of their starts, above the sections that were open at its start."""
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
    """The row of a box. The outermost section of a compile has the name of the compiled function."""
    section = box.section
    function = functions.get(section.compile_id) if section.outermost else None
    compile_id = "" if section.compile_id == "-" else section.compile_id
    times = (round(value, 6) for value in (box.start, box.seconds, section.own))
    return [box.level, *times, function or clean_line(section.name), section.phase, compile_id]
