"""Where the seconds of a start go, by phase, from the timed sections of torch's trace (``chromium_event``).

A section counts for its phase without the sections inside it, so that the phases of one thread add up. What several
threads compile at the same time is counted once; ``side_by_side`` says how much of it ran together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynadiag.explanation.source import event_data, first_event_data
from dynadiag.recording.json_values import json_object, list_or_empty
from dynadiag.recording.reader import Recording

_PROGRAM, _WITH_IMPORTS = "the program itself", "the program, and later imports"
_CPP, _WAITING = "C++ compiles", "waiting for compiles"
_SEVERAL = 1.05  # at once on average
PHASES = (
    "import",
    "tracing",
    "guards",
    "cache keys",
    "cache loads",
    "AOTAutograd",
    "Inductor",
    _CPP,
    "Triton compiles",
    _WAITING,
    "autotuning",
    "other compiling",
    _PROGRAM,
    _WITH_IMPORTS,
)
# The first that matches a section's name; torch 2.11 to 2.15.
_SECTIONS = (
    (r"compile_file", _CPP),
    (r"torch_key|triton_key|get_system", "cache keys"),
    (r"autotun|benchmark|coordinate_descent|coordesc", "autotuning"),
    (r"triton.*compile|CachingAutotuner|StaticallyLaunched", "Triton compiles"),
    (r"async_compile\.wait", _WAITING),
    (r"AOTAutogradCache|FxGraphCache|inductor_load|load_by_key_path|read_and_emit|pgo\.|cache_hit", "cache loads"),
    (r"build_guards|^gc$", "guards"),
    (r"bytecode_tracing|compile_attempt|entire_frame_compile|^dynamo$|insert_deferred|compiled_autograd", "tracing"),
    (r"backend_compile|create_aot_dispatcher|^aot_|autograd|min_cut|partition|entire_backward", "AOTAutograd"),
    (r"inductor|fx_codegen|compile_fx|GraphLowering|Scheduler|code_gen|Codegen|codegen|pass|Triton", "Inductor"),
)


@dataclass(frozen=True, slots=True)
class StartPhase:
    """Seconds in one phase of the start. ``side_by_side`` is how many ran at once on average, where several did."""

    name: str
    seconds: float
    side_by_side: float | None = None


@dataclass(frozen=True, slots=True)
class StartPhases:
    """The phases of a run; those of no length are left out."""

    seconds: float | None  # of the whole run
    phases: tuple[StartPhase, ...]


@dataclass(frozen=True, slots=True)
class TimedSection:
    """A section of torch's trace that was closed: torch's name of it, its phase, and its compile.

    ``start`` and ``end`` are seconds since the epoch, ``own`` the seconds of it that no section inside it has.
    """

    name: str
    phase: str
    compile_id: str
    own: float
    start: float
    end: float
    outermost: bool


def start_phases(recording: Recording) -> StartPhases:
    """Return where the seconds of a recording's run went. A run that did not compile has no phases."""
    found = list(timed_sections(recording))
    sections = [(each.start, each.end) for each in found if each.outermost]
    compiling = _union(sections)
    total, before = _process_seconds(recording)
    later = _later_imports(recording)
    importing = before + _union([*sections, *(later or ())]) - compiling
    rest = None if total is None else total - importing - compiling
    phases = [StartPhase("import", importing)] if importing else []
    phases += _phases(found)
    phases += [StartPhase(_WITH_IMPORTS if later is None else _PROGRAM, rest)] if rest and rest > 0 and found else []
    return StartPhases(total, tuple(phases))


def _phases(sections: Iterable[TimedSection]) -> tuple[StartPhase, ...]:
    own: dict[str, float] = defaultdict(float)
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in sections:
        own[each.phase] += each.own
        spans[each.phase].append((each.start, each.end))
    if _CPP in own:
        own[_CPP] = _union([*spans[_CPP], *spans[_WAITING]])
        del spans[_WAITING]
    named = [name for name in PHASES if name in spans and own[name] > 0]
    return tuple(StartPhase(name, own[name], _at_once(spans[name]) if name == _CPP else None) for name in named)


def _at_once(spans: Sequence[tuple[float, float]]) -> float | None:
    """How many of these ran at once on average, None for one after the other. Only C++ is compiled in threads."""
    covered = _union(spans)
    together = sum(end - start for start, end in spans) / covered if covered else 1.0
    return together if together >= _SEVERAL else None


def timed_sections(recording: Recording) -> Iterator[TimedSection]:
    """The sections of the log: begin and end events of one thread are nested. One without the other is left out."""
    stacks: dict[Any, list[tuple[str, float, list[float]]]] = defaultdict(list)
    for event in recording.events("chromium_event"):
        data = json_object(recording.payload(event.index))
        name, time, kind = data.get("name"), data.get("ts"), data.get("ph")
        if not isinstance(name, str) or not isinstance(time, (int, float)) or kind not in ("B", "E"):
            continue
        # torch numbers all threads alike: what compiles C++ outside any compile is another thread.
        stack = stacks[data.get("pid"), data.get("tid"), event.compile_id == "-" and data.get("name") == "compile_file"]
        if kind == "B":
            stack.append((name, time / 1e6, [0.0]))
            continue
        if not any(open_[0] == name for open_ in stack):
            continue
        while stack and stack[-1][0] != name:
            stack.pop()
        _, start, inside = stack.pop()
        length = max(0.0, time / 1e6 - start)
        if stack:
            stack[-1][2][0] += length
        own = max(0.0, length - inside[0])
        yield TimedSection(name, _phase_of(name), event.compile_id, own, start, start + length, not stack)


def _phase_of(name: str) -> str:
    return next((phase for pattern, phase in _SECTIONS if re.search(pattern, name)), "other compiling")


def _process_seconds(recording: Recording) -> tuple[float | None, float]:
    """Seconds of the whole process, and of them those before the recorder began: mostly ``import torch``."""
    whole = [end.get("seconds") for _, end in event_data(recording, "dynadiag_exit")]
    known = [seconds for seconds in whole if isinstance(seconds, (int, float))]
    recorded = recording.run.seconds
    if not known or recorded is None:
        return recorded, 0.0
    return float(known[-1]), max(0.0, float(known[-1]) - recorded)


def _later_imports(recording: Recording) -> list[tuple[float, float]] | None:
    """When torch imported parts of itself after ``import torch``; None where that was not timed."""
    spans = first_event_data(recording, "dynadiag_end").get("imports")
    timed = (each for each in list_or_empty(spans) if isinstance(each, list) and len(each) == 2)
    known = [(began, ended) for began, ended in timed if isinstance(began, float) and isinstance(ended, float)]
    return known if isinstance(spans, list) else None


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """The time that spans cover together."""
    covered, last = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, last))
        last = max(last, end)
    return covered
