"""The time line of one compile, from the chromium events of the trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynadiag.explanation.formatting import duration
from tui.overview import PARTS
from tui.session import Session
from tui.styled_text import Line, line, one_line

__all__ = ["Phase", "pair_events", "read_phases", "timeline_lines"]

_MAX_EVENTS = 5_000  # events read of one compile
_BAR_WIDTH = 24  # columns for the whole compile
_MIN_SHARE = 0.0005  # fraction of the compile; shorter phases are only counted
# The phases with which the parts of the compiler begin, in torch's names; phases inside one belong to its part.
_BEGINS = {
    "_compile.compile_inner": "dynamo",
    "OutputGraph.call_user_compiler": "aot",
    "create_aot_dispatcher_function": "aot",
    "compile_fx_inner": "inductor",
    "GraphLowering.compile_to_module": "codegen",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the compiler. ``start`` and ``seconds`` are in seconds; the first event is at 0."""

    name: str
    depth: int
    start: float
    seconds: float


def read_phases(session: Session, compile_id: str) -> list[Phase]:
    """Return the phases of a compile in the order of their start."""
    found = session.recording.events(kind="chromium_event", compile_id=compile_id, limit=_MAX_EVENTS)
    return pair_events(_json(session.payload(event.index)) for event in list(found))


def pair_events(events: Iterable[Any]) -> list[Phase]:
    """Pair begin and end events. A phase without an end lasts until the last event."""
    stacks: dict[object, list[int]] = {}
    made: list[tuple[str, int, float, float | None]] = []
    last = 0.0
    for data in events:
        if not isinstance(data, dict) or not isinstance(data.get("ts"), (int, float)):
            continue
        kind, name, time = data.get("ph"), str(data.get("name")), data["ts"] / 1e6
        last = max(last, time)
        stack = stacks.setdefault(data.get("tid") if isinstance(data.get("tid"), int) else None, [])
        if kind == "B":
            stack.append(len(made))
            made.append((name, len(stack) - 1, time, None))
        elif kind == "E":
            _end_phase(made, stack, name, time)
    return _measure_phases(made, last)


def _end_phase(made: list[tuple[str, int, float, float | None]], stack: list[int], name: str, time: float) -> None:
    """Close the innermost open phase of this name and all phases inside it."""
    if not any(made[place][0] == name for place in stack):
        return
    while stack:
        place = stack.pop()
        opened, depth, start, _ = made[place]
        made[place] = (opened, depth, start, time)
        if opened == name:
            return


def _measure_phases(made: Sequence[tuple[str, int, float, float | None]], last: float) -> list[Phase]:
    first = min((start for _, _, start, _ in made), default=0.0)
    return [
        Phase(name, depth, start - first, max(0.0, (last if end is None else end) - start))
        for name, depth, start, end in made
    ]


def timeline_lines(found: Sequence[Phase]) -> list[Line]:
    """Return a line for each phase: its seconds, a bar at its position, its name."""
    if not found:
        return [line(("no time line was recorded for this compile", "dim"))]
    whole = max(phase.start + phase.seconds for phase in found) or 1.0
    shown = [pair for pair in zip(found, _parts(found), strict=True) if pair[0].seconds >= whole * _MIN_SHARE]
    hidden = len(found) - len(shown)
    lines = [line(("time line", "title"), (f"  {duration(whole)}", "dim")), *_phase_lines(shown, whole)]
    if hidden:
        lines.append(line((f"and {hidden:,} shorter than {whole * _MIN_SHARE * 1e3:.2f} ms", "dim")))
    return lines


def _parts(found: Iterable[Phase]) -> Iterator[str]:
    """Yield the part of the compiler that each phase belongs to: its own, or that of the phase around it."""
    around: list[str] = []
    for phase in found:
        del around[phase.depth :]
        around.append(_BEGINS.get(phase.name) or (around[-1] if around else "other"))
        yield around[-1]


def _phase_lines(found: Iterable[tuple[Phase, str]], whole: float) -> Iterator[Line]:
    for phase, part in found:
        before = min(int(phase.start / whole * _BAR_WIDTH), _BAR_WIDTH - 1)
        width = max(1, min(round(phase.seconds / whole * _BAR_WIDTH), _BAR_WIDTH - before))
        bar = " " * before + "█" * width + " " * (_BAR_WIDTH - before - width)
        indent = " " * phase.depth
        yield line((f"{phase.seconds * 1e3:>9,.1f} ms ", ""), (bar, PARTS[part][1]), f" {indent}{one_line(phase.name)}")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a truncated payload: ignore the event
        return None
