"""Two recordings side by side: step time, peak memory and launches, and the stage of compiling that explains them.

`dynadiag compare` writes what it measured into each variant's recording (``dynadiag_measured``). Of other recordings
the peak of the process is known, and no time; the kernels of a call are where all is one piece of compiled code.

Two recordings are not measured in turn, so that the machine may have been slower for one of them. Each has the time of
work that is the same in all programs: a step time differs only beyond what that work differs by.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dynadiag.check.measurement import peak_memory
from dynadiag.compare.call_kernels import kernels_of_a_call
from dynadiag.diff.comparison import compare_recordings
from dynadiag.diff.difference import COMPILED_STAGES, Comparison, Difference
from dynadiag.diff.environment_differences import changed_fact
from dynadiag.explanation.formatting import count, list_some, short_duration, size_text
from dynadiag.explanation.runtime_cost import WarmCalls, read_warm_calls
from dynadiag.explanation.source import first_event_data, first_payload
from dynadiag.recording.reader import Recording
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import CommandDocument, document_of
from dynadiag.render.paths import source_location
from dynadiag.render.printer import Printer

MEASURED = "dynadiag_measured"  # the kind of the event
_SAME_MEMORY = 0.02  # of the larger peak: two GPUs' allocators round otherwise
_EXPLAINS = 0.5  # of a difference in time, that a cause must have cost in the profile to be named
_MOST = 3  # explaining differences that are told
_UNITS: dict[str, Callable[[float], str]] = {
    "step_time": short_duration,
    "peak_memory": size_text,
    "launches": lambda number: f"{number:g}",
}
_NAMES = {"step_time": "step time", "peak_memory": "peak memory", "launches": "launches"}
_OF_PROCESS = "of the whole process, with what compiling needed"
_OTHERWISE = "not counted alike"
_GIVEN = {"variant": "the variant", "step": "the step", "threads": "threads"}

_Interval = tuple[float, float]
# What a call of each runs by the generated code, which is read when it is first asked for.
_Counts = Callable[[], tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a variant: the median of its warm calls in ``seconds``, and the interval of that median.

    ``peak`` is in bytes, of the device where one was used; ``launches`` are those of one call on a GPU. ``yardstick``
    is the interval of the seconds of work that is the same in all programs. ``given`` is how the calls were made.
    """

    seconds: float | None = None
    interval: _Interval | None = None
    peak: int | None = None
    launches: int | None = None
    yardstick: _Interval | None = None
    given: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both recordings, in seconds, bytes or calls; None where it is not known.

    The intervals are those of the median, None where it was counted once. ``machine`` is the interval of how many times
    longer the same work took on B's machine. ``unlike`` says why the two cannot be compared, empty where they can.
    ``of_one``: both ran the same code in the same way, by all that was recorded. What one program shows in two runs is
    no difference.
    """

    name: str  # "step_time" | "peak_memory" | "launches"
    a: float | None
    b: float | None
    a_interval: _Interval | None = None
    b_interval: _Interval | None = None
    machine: _Interval = (1.0, 1.0)
    unlike: str = ""
    of_one: bool = False

    @property
    def ratio(self) -> float | None:
        """B as a multiple of A."""
        return self.b / self.a if self.a and self.b is not None else None

    @property
    def differs(self) -> bool | None:
        """Whether B is another than A, beyond the intervals and what the machine explains. None: not known."""
        if self.a is None or self.b is None or self.unlike:
            return None
        if self.of_one:
            return False
        if self.a_interval and self.b_interval:
            low, high = (self.a_interval[side] * side_of(1.0, self.machine[side]) for side, side_of in _WIDER)
            return high < self.b_interval[0] or self.b_interval[1] < low
        least = _SAME_MEMORY * max(self.a, self.b) if self.name == "peak_memory" else 0.0
        return abs(self.a - self.b) > least

    @property
    def verdict(self) -> str:
        """The last cell of its row."""
        if self.a is None or self.b is None:
            return "not known"
        same = "the same" if self.a == self.b else "within the noise"
        return self.unlike or ("differs" if self.differs else same)


_WIDER: tuple[tuple[int, Callable[[float, float], float]], ...] = ((0, min), (1, max))


@dataclass(frozen=True, slots=True)
class RecordedComparison:
    """The figures of two recordings, and the differences of what was compiled, the explaining one first.

    ``settings`` are differences of versions, options and how the calls were made, ``source`` those of the program: they
    cause the others. ``unknown`` says why none of the differences explains the step time, empty where one does.
    ``notes`` say what hinders the comparison, such as that these are two programs.
    """

    figures: tuple[Figure, ...]
    explained_by: tuple[Difference, ...]
    settings: tuple[str, ...] = ()
    source: tuple[Difference, ...] = ()
    unknown: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_one_program(self) -> bool:
        """Whether both ran the same code in the same way, by all that was recorded."""
        return not (self.explained_by or self.settings or self.source)

    @property
    def differing(self) -> tuple[Figure, ...]:
        return tuple(each for each in self.figures if each.differs)


def compare_recorded(a: Recording, b: Recording) -> RecordedComparison:
    """Return the figures of two recordings, and what explains a difference of them."""
    first, second, found = _read(a), _read(b), compare_recordings(a, b)
    explained = tuple(_compiled(found))
    others = [each for each in found.differences if each.stage not in COMPILED_STAGES]
    seeds = [first_event_data(side, "dynadiag_end").get("seed") for side in (a, b)]
    facts = [changed_fact(label, first.given.get(name), second.given.get(name)) for name, label in _GIVEN.items()]
    facts.append(changed_fact("the seed of torch's random numbers", *seeds))
    settings = (each.text for each in (*(each for each in others if not each.details), *facts) if each is not None)
    compared = RecordedComparison((), explained, tuple(dict.fromkeys(settings)), tuple(e for e in others if e.details))
    time = Figure("step_time", first.seconds, second.seconds, first.interval, second.interval, _slower(first, second))
    counts = functools.cache(lambda: (_kernel_count(a, first), _kernel_count(b, second)))
    measured = (time, _peaks(a, b, first, second), _launches(counts, first, second))
    figures = tuple(replace(each, of_one=compared.is_one_program) for each in measured)
    is_profiled = "train" not in (first.given.get("step"), second.given.get("step"))  # a profile has no backward
    unknown = _unexplained(a, b, time, explained, counts) if figures[0].differs and is_profiled else ""
    return replace(compared, figures=figures, unknown=unknown, notes=found.notes)


def _compiled(found: Comparison) -> Iterator[Difference]:
    """The differences of what was compiled, by stage; that which leads the comparison first. Caches cost no step."""
    compiled = [each for each in found.differences if each.stage in COMPILED_STAGES and each.stage != "cache"]
    lead = found.differences[found.first] if found.first is not None else None
    yield from sorted(compiled, key=lambda each: (each is not lead, COMPILED_STAGES.index(each.stage)))


def _read(recording: Recording) -> Measured:
    return first_payload(recording, MEASURED, Measured) or Measured()


def _slower(first: Measured, second: Measured) -> _Interval:
    """How many times longer the same work took beside the second: from, to."""
    if not (first.yardstick and second.yardstick and min(*first.yardstick, *second.yardstick) > 0):
        return 1.0, 1.0
    return second.yardstick[0] / first.yardstick[1], second.yardstick[1] / first.yardstick[0]


def _peaks(a: Recording, b: Recording, first: Measured, second: Measured) -> Figure:
    """The peaks of a warm call where they were measured, else of the processes: on a CPU with the compiler's."""
    if first.peak is not None and second.peak is not None:
        return Figure("peak_memory", first.peak, second.peak)
    on_cpu = "cpu" in (a.run.device, b.run.device)
    return Figure("peak_memory", peak_memory(a), peak_memory(b), unlike=_OF_PROCESS if on_cpu else "")


def _launches(counts: _Counts, first: Measured, second: Measured) -> Figure:
    """The launches of a call on a GPU where they were measured, else what a call runs by the generated code."""
    was, now = first.launches, second.launches
    unlike = _OTHERWISE if (was is None) != (now is None) else ""
    return Figure("launches", counts()[0] if was is None else was, counts()[1] if now is None else now, unlike=unlike)


def _kernel_count(recording: Recording, measured: Measured) -> float | None:
    found = kernels_of_a_call(recording, read_warm_calls(recording), measured.given.get("step"))
    return None if found is None else found.total


def _unexplained(a: Recording, b: Recording, time: Figure, explained: Sequence[Difference], counts: _Counts) -> str:
    """Why, by the profiles, the first difference in the compiled code does not explain the time; empty where it does.

    A profile has the time of a warm call for finding compiled code, between graphs, and in them.
    """
    was, now = read_warm_calls(a), read_warm_calls(b)
    if not explained or time.a is None or time.b is None or was is None or now is None:
        return ""
    longer, seen = time.b - time.a, now.seconds - was.seconds
    what = f"a profile of {count(now.calls, 'warm call')}"
    if seen / longer < _EXPLAINS:
        return f"{_by(longer)}, and {what} shows {_by(seen)}"
    checks, between = (after - before for before, after in zip(_parts(was), _parts(now), strict=True))
    if {each.stage for each in explained} == {"guard"} and checks / longer < _EXPLAINS:
        return f"{_by(longer)}, and guards {_by(checks)} by {what}"
    is_break = explained[0].stage == "break" and (checks + between) / longer < _EXPLAINS
    if is_break and counts()[0] == counts()[1] is not None:
        return f"{_by(longer)}, and what passes between graphs {_by(checks + between)} by {what}"
    return ""


def _by(seconds: float) -> str:
    return f"{short_duration(abs(seconds))} {'longer' if seconds > 0 else 'less'}"


def _parts(warm: WarmCalls) -> tuple[float, float]:
    """The seconds of a call that go into finding compiled code, and those between graphs."""
    checks = math.fsum(use.guard for use in warm.uses)
    between = math.fsum((warm.outside, *(part for use in warm.uses for part in (use.before, use.after))))
    return checks, between


def recorded_text(found: RecordedComparison, names: Sequence[str], cwd: str | None, printer: Printer) -> str:
    """What was given, the figures as a table, then what explains them."""
    lines = printer.wrap(f"Not run alike: {list_some(found.settings)}.") if found.settings else []
    lines += printer.wrap(_headline(found)) if found.settings else []
    lines = [printer.paint(each, "break" if found.differing else "good") for each in lines or [_headline(found)]]
    lines = [*(line for note in found.notes for line in printer.wrap(f"note: {clean_line(note)}")), *lines]
    lines += [f"A: {clean_line(names[0])}", f"B: {clean_line(names[1])}", ""]
    for figure in found.figures:
        sides = (figure.a, figure.a_interval), (figure.b, figure.b_interval)
        a, b = (_shown(figure, value, interval) for value, interval in sides)
        ratio = f"{figure.ratio:.2f} times" if figure.ratio is not None else ""
        lines.append(f"{_NAMES[figure.name]:<12} {a:<34} {b:<34} {ratio:<12} {figure.verdict}".rstrip())
    if not found.is_one_program:
        lines += ["", *_explanation(found, cwd, printer)]
    return "\n".join(lines) + "\n"


def _headline(found: RecordedComparison) -> str:
    stage = found.explained_by[0].stage if found.explained_by else None
    first = f" The first stage that differs: {stage}." if stage else ""
    unsaid = [_NAMES[each.name] for each in found.figures if each.differs is None]
    if len(unsaid) == len(found.figures) and not found.is_one_program:
        return f"No figure can be compared.{first}"
    if not found.differing:
        return f"No difference beyond noise.{f' Not compared: {list_some(unsaid)}.' if unsaid else ''}{first}"
    ratios = [f"{_NAMES[each.name]} {each.ratio:.2f} times" for each in found.differing if each.ratio is not None]
    why = f"the first stage that differs: {stage}" if stage else "nothing that was compiled differs"
    return f"B against A: {', '.join(ratios)}; {'why is unknown' if found.unknown else why}."


def _shown(figure: Figure, value: float | None, interval: _Interval | None) -> str:
    if value is None:
        return "-"
    unit = _UNITS[figure.name]
    return unit(value) + (f" ({unit(interval[0])} to {unit(interval[1])})" if interval else "")


def _explanation(found: RecordedComparison, cwd: str | None, printer: Printer) -> Iterator[str]:
    """The first stage at which what was compiled differs, and what the runs were given."""
    if found.unknown:
        yield from printer.labelled("unknown", f"the step takes {found.unknown}")
    for each in found.explained_by[:_MOST]:
        at = f" at {source_location(each.file, each.line, None, cwd)}" if each.file else ""
        yield from printer.labelled(each.stage, f"{each.text}{at}")
    if len(found.explained_by) > _MOST:
        yield from printer.labelled("and", f"{len(found.explained_by) - _MOST} more; `dynadiag diff A B` shows them")
    for each in found.source[:_MOST]:
        yield from printer.labelled("given", each.text)
    if not found.explained_by and found.differing:
        yield from printer.labelled("why", "what was compiled is the same: it is the machine, or what is not compiled")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureDocument:
    """A figure in JSON."""

    name: str
    a: float | None
    b: float | None
    a_interval: tuple[float, float] | None
    b_interval: tuple[float, float] | None
    ratio: float | None
    differs: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationDocument:
    """A difference of what was compiled in JSON."""

    stage: str
    compile_ids: tuple[str | None, str | None]
    file: str | None
    line: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedComparisonDocument(CommandDocument):
    """The JSON document of ``dynadiag compare A B``."""

    a: str
    b: str
    figures: tuple[FigureDocument, ...]
    explained_by: tuple[ExplanationDocument, ...]
    settings: tuple[str, ...]
    unknown: str | None


def recorded_document(found: RecordedComparison, names: Sequence[str], torch: str | None) -> RecordedComparisonDocument:
    """The document of a comparison of two recordings."""
    return RecordedComparisonDocument(
        torch=torch,
        a=names[0],
        b=names[1],
        figures=tuple(
            document_of(FigureDocument, each, ratio=each.ratio, differs=each.differs) for each in found.figures
        ),
        explained_by=tuple(document_of(ExplanationDocument, each) for each in found.explained_by),
        settings=found.settings,
        unknown=found.unknown or None,
    )
