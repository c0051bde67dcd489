"""A recording as a trace in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.

The tracks are: torch's timed sections, nested; C++ compiles that ran side by side, one below another; cache lookups;
the generated kernels, with an arrow to each from the source lines that it computes.
Kernels and source lines begin at the time when their module was generated. They take no time, but their slices are
`_STEP` wide so that they can be seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from dynadiag.caches.start_phases import TimedSection, timed_sections
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile, Event
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import source_location

_PROCESS = 1
_SECTIONS, _CACHES, _SOURCE, _KERNELS, _SIDE_BY_SIDE = 1, 2, 3, 4, 10  # threads of the trace; the last ones go on
_NAMES = {_SECTIONS: "torch.compile", _CACHES: "caches", _SOURCE: "source lines", _KERNELS: "kernels"}
_STEP = 100.0  # microseconds
_CPP_COMPILE = "compile_file"
_TIME = "%Y%m%d %H:%M:%S.%f"  # of an event in the log, with a year before it


@dataclass(frozen=True, slots=True)
class _Clock:
    """Turns the time of an event in the log, which has no year and no zone, into microseconds since the start."""

    start: float  # microseconds since the epoch
    offset: float  # from the log's time, read as UTC, to the epoch

    def since_start(self, time: str | None) -> float | None:
        """Microseconds from the start to an event; ``None`` if the log has no time for it."""
        found = _microseconds(time)
        return None if found is None else max(0.0, found + self.offset - self.start)


def trace_events(recording: Recording) -> bytes:
    """Return the trace of a recording as JSON. One that has no timed sections has metadata only."""
    sections = list(timed_sections(recording))
    clock = _clock(recording, sections)
    compiles = {each.compile_id: each for each in recording.compiles()}
    events: list[dict[str, Any]] = []
    if clock is not None:
        times = _event_times(recording, clock)
        events += _section_events(sections, clock, compiles, recording.run.cwd)
        events += _cache_events(recording, sections, clock, times)
        events += _kernel_events(recording, times)
    used = dict.fromkeys(event["tid"] for event in events)
    names = [_metadata("process_name", _SECTIONS, clean_line(recording.run.target) or "program")]
    names += [_metadata("thread_name", thread, _NAMES.get(thread, "C++ compiles")) for thread in used]
    names += [event | {"name": "thread_sort_index", "args": {"sort_index": event["tid"]}} for event in names[1:]]
    other = {"dynadiag": "export --perfetto", "torch": recording.run.torch}
    return orjson.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms", "otherData": other})


def _metadata(name: str, thread: int, value: str) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": thread, "name": name, "args": {"name": value}}


# Sections


def _section_events(
    sections: Sequence[TimedSection], clock: _Clock, compiles: dict[str, Compile], cwd: str | None
) -> Iterator[dict[str, Any]]:
    lanes: list[float] = []  # when the last C++ compile of each lane ends
    for each in sorted(sections, key=lambda one: (one.start, -one.end)):
        thread = _SECTIONS
        if each.name == _CPP_COMPILE and each.compile_id == "-":  # in threads of Inductor's
            lane = next((i for i, end in enumerate(lanes) if end <= each.start), len(lanes))
            lanes[lane:] = [each.end, *lanes[lane + 1 :]]
            thread = _SIDE_BY_SIDE + lane
        start = each.start * 1e6 - clock.start
        compiled = compiles.get(each.compile_id)
        name = f"{clean_line(compiled.function)} [{each.compile_id}]" if each.outermost and compiled else each.name
        yield _slice(name, thread, start, (each.end - each.start) * 1e6, each.phase, _arguments(each, compiled, cwd))


def _arguments(section: TimedSection, compiled: Compile | None, cwd: str | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"section": section.name, "compile_id": section.compile_id, "own_seconds": section.own}
    if compiled is not None and section.outermost:
        arguments |= {"outcome": compiled.outcome, "at": source_location(compiled.file, compiled.line, None, cwd)}
    return arguments


def _slice(
    name: str, thread: int, start: float, length: float, category: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    place = {"ph": "X", "pid": _PROCESS, "tid": thread, "ts": round(start, 1), "dur": round(length, 1)}
    return {**place, "name": name, "cat": category, "args": arguments}


# Caches


def _cache_events(
    recording: Recording, sections: Iterable[TimedSection], clock: _Clock, times: Mapping[int, float]
) -> Iterator[dict[str, Any]]:
    """An instant for each lookup, at its event; without one, at the end of its compile."""
    ends: dict[str, float] = {}
    for each in sections:
        ends[each.compile_id] = max(ends.get(each.compile_id, 0.0), each.end * 1e6 - clock.start)
    for lookup in recording.cache_lookups():
        time = times.get(-1 if lookup.event is None else lookup.event, ends.get(lookup.compile_id, 0.0))
        arguments = {
            "compile_id": lookup.compile_id,
            "graph": lookup.graph,
            "key": lookup.key,
            "reason": lookup.reason,
            "seconds": lookup.seconds,
        }
        yield {
            "ph": "i",
            "s": "t",
            "pid": _PROCESS,
            "tid": _CACHES,
            "ts": round(time, 1),
            "name": f"{lookup.cache} {lookup.outcome}",
            "cat": "cache",
            "args": {name: value for name, value in arguments.items() if value is not None},
        }


# Kernels and source lines


def _kernel_events(recording: Recording, times: Mapping[int, float]) -> Iterator[dict[str, Any]]:
    arrows = itertools.count(1)
    free = 0.0  # where the last module's kernels end
    for module, calls in itertools.groupby(kernel_calls(recording), key=lambda call: call.event):
        time = max(free, times.get(module, 0.0))
        for call in calls:
            yield from _kernel(call, time, arrows, recording.run.cwd)
            time += _STEP
        free = time


def _kernel(call: KernelCall, time: float, arrows: Iterator[int], cwd: str | None) -> Iterator[dict[str, Any]]:
    """A kernel, the source lines that it computes side by side above it, and an arrow from each of them."""
    lines = [source_location(line.file, line.line, None, cwd) for line in call.source_lines]
    arguments = {
        "compile_id": call.compile_id,
        "graph": call.stage,
        "language": call.language,
        "operators": ", ".join(call.ops),
        "lines": ", ".join(lines),
    }
    yield _slice(clean_line(call.name), _KERNELS, time, _STEP, "kernel", arguments)
    width = _STEP / max(1, len(lines))
    for number, line in enumerate(lines):
        start = time + number * width
        yield _slice(line, _SOURCE, start, width, "source", {})
        arrow = {"name": "computes", "cat": "source", "id": next(arrows), "pid": _PROCESS}
        middle = round(start + width / 2, 1)
        yield {**arrow, "ph": "s", "tid": _SOURCE, "ts": middle}
        yield {**arrow, "ph": "f", "bp": "e", "tid": _KERNELS, "ts": middle}


# Time


def _clock(recording: Recording, sections: Sequence[TimedSection]) -> _Clock | None:
    """The clock of a recording: its first section says how far the log's own times are from the epoch."""
    if not sections:
        return None
    first = next(recording.events("chromium_event"))
    logged, epoch = _microseconds(first.time), _epoch_microseconds(recording, first)
    offset = epoch - logged if logged is not None and epoch is not None else 0.0
    return _Clock(min(each.start for each in sections) * 1e6, offset)


def _epoch_microseconds(recording: Recording, event: Event) -> float | None:
    try:
        found = orjson.loads(recording.payload(event.index)).get("ts")
    except (ValueError, AttributeError):
        return None
    return float(found) if isinstance(found, (int, float)) else None


def _microseconds(time: str | None) -> float | None:
    """The time of an event in the log, ``1120 06:38:46.123456``, in microseconds of a leap year."""
    try:
        return datetime.strptime(f"2024{time}", _TIME).replace(tzinfo=UTC).timestamp() * 1e6
    except ValueError:
        return None


def _event_times(recording: Recording, clock: _Clock) -> dict[int, float]:
    times = {event.index: clock.since_start(event.time) for event in recording.events()}
    return {index: time for index, time in times.items() if time is not None}
