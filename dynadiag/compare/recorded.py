"""Two recordings side by side: step time, peak memory and launches, and the stage of compiling that explains them.

`dynadiag compare` writes what it measured into each variant's recording (``dynadiag_measured``). Of other recordings
the peak of the process and the kernel calls are known, and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dynadiag.diff.comparison import compare_recordings
from dynadiag.diff.difference import COMPILED_STAGES, Comparison, Difference
from dynadiag.explanation.formatting import short_duration, size_text
from dynadiag.explanation.source import event_data, first_payload
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.reader import Recording
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import CommandDocument, document_of
from dynadiag.render.paths import source_location
from dynadiag.render.printer import Printer

MEASURED = "dynadiag_measured"  # the kind of the event
_SAME_MEMORY = 0.02  # of the larger peak: what two runs of one program differ by
_MOST = 3  # explaining differences that are told
_UNITS: dict[str, Callable[[float], str]] = {
    "step_time": short_duration,
    "peak_memory": size_text,
    "launches": lambda number: f"{number:g}",
}
_NAMES = {"step_time": "step time", "peak_memory": "peak memory", "launches": "launches"}


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a variant: the median of its warm calls in ``seconds``, and the interval of that median.

    ``peak`` is in bytes, of the device where one was used; ``launches`` are those of one call on a GPU.
    """

    seconds: float | None = None
    interval: tuple[float, float] | None = None
    peak: int | None = None
    launches: int | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both recordings, in seconds, bytes or calls; None where it was not recorded.

    The intervals are those of the median, None where it was counted once. ``differs`` is None where it is not known.
    """

    name: str  # "step_time" | "peak_memory" | "launches"
    a: float | None
    b: float | None
    a_interval: tuple[float, float] | None = None
    b_interval: tuple[float, float] | None = None

    @property
    def ratio(self) -> float | None:
        """B as a multiple of A."""
        return self.b / self.a if self.a and self.b is not None else None

    @property
    def differs(self) -> bool | None:
        """Whether B is another than A: beyond both intervals, or beyond what two runs of one program differ by."""
        if self.a is None or self.b is None:
            return None
        if self.a_interval and self.b_interval:
            return self.a_interval[1] < self.b_interval[0] or self.b_interval[1] < self.a_interval[0]
        least = _SAME_MEMORY * max(self.a, self.b) if self.name == "peak_memory" else 0.0
        return abs(self.a - self.b) > least


@dataclass(frozen=True, slots=True)
class RecordedComparison:
    """The figures of two recordings, and the differences of what was compiled, the explaining one first."""

    figures: tuple[Figure, ...]
    explained_by: tuple[Difference, ...]
    given: tuple[Difference, ...]  # differences of versions, options and source, which cause the others

    @property
    def differs(self) -> bool:
        """Whether any figure does."""
        return any(figure.differs for figure in self.figures)


def compare_recorded(a: Recording, b: Recording) -> RecordedComparison:
    """Return the figures of two recordings, and what explains a difference of them."""
    first, second, found = _measured(a), _measured(b), compare_recordings(a, b)
    figures = (
        Figure("step_time", first.seconds, second.seconds, first.interval, second.interval),
        Figure("peak_memory", first.peak, second.peak),
        Figure("launches", first.launches, second.launches),
    )
    return RecordedComparison(
        figures,
        tuple(_compiled(found)),
        tuple(each for each in found.differences if each.stage not in COMPILED_STAGES),
    )


def _compiled(found: Comparison) -> Iterator[Difference]:
    """The differences of what was compiled, by stage; that which leads the comparison first. Caches cost no step."""
    compiled = [each for each in found.differences if each.stage in COMPILED_STAGES and each.stage != "cache"]
    lead = found.differences[found.first] if found.first is not None else None
    yield from sorted(compiled, key=lambda each: (each is not lead, COMPILED_STAGES.index(each.stage)))


def _measured(recording: Recording) -> Measured:
    """What was measured, completed by what each recording has: the peak of its process, and the calls of kernels."""
    found = first_payload(recording, MEASURED, Measured) or Measured()
    peaks = [end.get("peak_memory") for _, end in event_data(recording, "dynadiag_end")]
    peak = next((each for each in peaks if isinstance(each, int)), None)
    calls = kernel_calls(recording)
    launches = len(calls) if calls or not recording.graphs() else None  # graphs of another backend launch unseen
    return replace(
        found,
        peak=peak if found.peak is None else found.peak,
        launches=launches if found.launches is None else found.launches,
    )


def recorded_text(found: RecordedComparison, names: Sequence[str], cwd: str | None, printer: Printer) -> str:
    """The figures as a table, then what explains them."""
    lines = [printer.paint(_headline(found), "break" if found.differs else "good")]
    lines += [f"A: {clean_line(names[0])}", f"B: {clean_line(names[1])}", ""]
    for figure in found.figures:
        a, b = (_shown(figure, value, interval) for value, interval in _sides(figure))
        ratio = f"{figure.ratio:.2f} times" if figure.ratio is not None else ""
        word = {True: "differs", False: "the same", None: "not recorded"}[figure.differs]
        lines.append(f"{_NAMES[figure.name]:<12} {a:<34} {b:<34} {ratio:<12} {word}".rstrip())
    if found.differs or found.explained_by:
        lines += ["", *_explanation(found, cwd, printer)]
    return "\n".join(lines) + "\n"


def _headline(found: RecordedComparison) -> str:
    differing = [figure for figure in found.figures if figure.differs]
    if not differing and found.explained_by:
        unknown = [_NAMES[each.name] for each in found.figures if each.differs is None]
        known = f" that is known; not recorded: {', '.join(unknown)}" if unknown else ""
        return f"No figure differs{known}. The first stage that differs: {found.explained_by[0].stage}."
    if not differing:
        return "No figure differs."
    told = [f"{_NAMES[each.name]} {each.ratio:.2f} times" for each in differing if each.ratio is not None]
    stage = found.explained_by[0].stage if found.explained_by else None
    why = f"; the first stage that differs: {stage}" if stage else "; nothing that was compiled differs"
    return f"B against A: {', '.join(told)}{why}."


def _sides(figure: Figure) -> tuple[tuple[float | None, tuple[float, float] | None], ...]:
    return (figure.a, figure.a_interval), (figure.b, figure.b_interval)


def _shown(figure: Figure, value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    unit = _UNITS[figure.name]
    return unit(value) + (f" ({unit(interval[0])} to {unit(interval[1])})" if interval else "")


def _explanation(found: RecordedComparison, cwd: str | None, printer: Printer) -> Iterator[str]:
    """The first stage at which what was compiled differs, and what the runs were given."""
    for each in found.explained_by[:_MOST]:
        at = f" at {source_location(each.file, each.line, None, cwd)}" if each.file else ""
        yield from printer.labelled(each.stage, f"{each.text}{at}")
    if len(found.explained_by) > _MOST:
        yield from printer.labelled("and", f"{len(found.explained_by) - _MOST} more; `dynadiag diff A B` shows them")
    for each in found.given[:_MOST]:
        yield from printer.labelled("given", each.text)
    if not found.explained_by:
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
    )
