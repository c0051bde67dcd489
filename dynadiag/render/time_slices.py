"""The pieces of time of a recording: compiles and recompiles, their phases, cache lookups, C++ compiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynadiag.caches.start_phases import timed_sections
from dynadiag.explanation.explanation import Explanation
from dynadiag.recording.reader import Recording
from dynadiag.render.clean import clean_line

_CPP_COMPILE = "compile_file"  # a section in a thread of Inductor's


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of time, in seconds since the epoch, and what it is. Its texts have no control characters."""

    start: float
    end: float
    depth: int
    kind: str  # "compile", "recompile", "phase", "C++", "cache"
    compile_id: str
    name: str
    rank: int = 0  # the number of the recording


def read_slices(recording: Recording, explanation: Explanation, rank: int = 0) -> list[Slice]:
    """Return the slices of a recording in the order of their start."""
    compiles = {item.compile_id: item for item in explanation.compiles}
    again = {item.compile_id for item in explanation.recompiles}
    found: list[Slice] = []
    around: dict[str, list[float]] = {}  # the ends of the open sections of each thread
    for section in sorted(timed_sections(recording), key=lambda one: (one.start, -one.end)):
        is_cpp = section.name == _CPP_COMPILE and section.compile_id == "-"
        ends = around.setdefault("C++" if is_cpp else "", [])
        while ends and ends[-1] <= section.start:
            ends.pop()
        item = compiles.get(section.compile_id) if section.outermost else None
        kind = (
            "C++" if is_cpp else "phase" if item is None else "recompile" if section.compile_id in again else "compile"
        )
        name = clean_line(item.function if item is not None else section.name)
        depth = 0 if is_cpp else len(ends)
        found.append(Slice(section.start, section.end, depth, kind, clean_line(section.compile_id), name, rank))
        ends.append(section.end)
    return sorted([*found, *_lookups(recording, found, rank)], key=lambda one: (one.start, -one.end))


def _lookups(recording: Recording, found: Sequence[Slice], rank: int) -> Iterator[Slice]:
    """The cache lookups of each compile at its end: the log has no time of most of them."""
    ends = {one.compile_id: one.end for one in found if one.kind in ("compile", "recompile")}
    for lookup in recording.cache_lookups():
        if (end := ends.get(clean_line(lookup.compile_id))) is not None:
            name = clean_line(f"{lookup.cache} {lookup.outcome}{f' ({lookup.graph})' if lookup.graph else ''}")
            yield Slice(end, end, 1, "cache", clean_line(lookup.compile_id), name, rank)
