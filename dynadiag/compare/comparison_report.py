"""A comparison as tables and as JSON, with one row for each variant in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import msgspec

from dynadiag import __version__
from dynadiag.compare.comparison import VariantComparison
from dynadiag.compare.variant import Variant
from dynadiag.compare.variant_result import MIN_ROUNDS, CompileSummary, Peak, RelativeSpeed, VariantResult
from dynadiag.explanation.formatting import count, duration, list_some, short_duration, size_text
from dynadiag.explanation.runtime_cost import CacheEntryRun, CallCost
from dynadiag.recording.records import UNCOMPILED_NOTE, Break
from dynadiag.recording.torch_text.operators import is_custom_operator
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import CommandDocument, document_of
from dynadiag.render.printer import Printer
from dynadiag.render.runtime_cost import (
    MAYBE,
    WITHIN_NOISE,
    break_cost_table,
    break_even_text,
    entries_table,
    speed_text,
)
from dynadiag.render.table import table
from dynadiag.render.wrap import truncate_middle
from dynadiag.trial.signature import Signature

_MAX_NAME_WIDTH = 60  # columns of a device's name in the head
_STEPS = {"call": "called as it is", "inference": "without gradients", "train": "forward and backward"}
_MISSING = "-"
_FEW_GENERATED = 0.05  # share of the kernels' time below which Inductor's own kernels do not matter

Column = tuple[str, Callable[[VariantResult], str]]


def comparison_text(comparison: VariantComparison, target: str, printer: Printer) -> str:
    """The answer, then the tables: times, what was compiled, compile times by part; failures and notes below."""
    return "\n".join(_ComparisonPrinter(comparison, target, printer).lines()) + "\n"


class _ComparisonPrinter:
    """Prints the tables and notes of a comparison."""

    def __init__(self, comparison: VariantComparison, target: str, printer: Printer) -> None:
        self._comparison, self._target, self._printer = comparison, target, printer

    def lines(self) -> Iterator[str]:
        comparison = self._comparison
        measured = [result for result in comparison.results if result.warm is not None]
        yield from (*self._head(), "")
        if measured:
            yield from (*self._table(measured, _times(comparison)), "", *self._table(measured, _figures(measured)))
        if compiled := [result for result in measured if result.compiled and result.compiled.seconds]:
            yield from ("", *self._table(compiled, list(_compile_times())))
        if details := self._warm_calls(measured):
            yield from (*details, "")
        for result in comparison.results:
            if result.failure is not None:
                yield from self._failure(result, result.failure)
        for note in _notes(comparison, measured):
            yield from self._printer.labelled("note", note)

    def _head(self) -> list[str]:
        comparison, printer = self._comparison, self._printer
        torch, threads = comparison.torch, comparison.threads
        device = truncate_middle(clean_line(comparison.device or ""), _MAX_NAME_WIDTH)
        parts = [f"dynadiag {__version__}", f"torch {torch}" if torch else "torch unknown", device]
        parts += [count(threads, "thread")] if threads else []
        step = _STEPS[comparison.results[0].variant.step]
        shown = printer.paint(truncate_middle(clean_line(self._target), printer.columns - len(step) - 2), "strong")
        answer = _answer(comparison)
        first = [printer.paint(line, "strong") for line in printer.wrap(answer)] if answer else []
        return [*first, ", ".join(part for part in parts if part), f"{shown}, {step}"]

    def _table(self, results: Sequence[VariantResult], columns: Sequence[Column]) -> list[str]:
        names = [_name(result, results) for result in results]
        return table(names, [(title, [show(result) for result in results]) for title, show in columns], self._printer)

    def _failure(self, result: VariantResult, failure: Signature) -> list[str]:
        message = next((line for line in failure.message.splitlines() if line.strip()), "")
        kind = f"{failure.type}: " if failure.kind == "exception" else ""
        lead = f"{clean_line(_name(result, self._comparison.results))}: "
        when = "after it was measured: " if result.rounds else ""  # such as with other inputs: its row stands above
        first, *rest = self._printer.wrap(f"{when}{kind}{message}", lead)
        return [self._printer.paint(first[: len(lead) - 1], "error") + first[len(lead) - 1 :], *rest]

    def _warm_calls(self, measured: Sequence[VariantResult]) -> list[str]:
        """The tables on warm calls. Variants with the same breaks and the same code share a table."""
        lines: list[str] = []
        shown: list[object] = []
        for result in measured:
            if (pattern := _break_and_run_pattern(result)) and pattern not in shown:
                shown.append(pattern)
                lines += self._code_tables(clean_line(_name(result, measured)), result)
        return lines

    def _code_tables(self, name: str, result: VariantResult) -> Iterator[str]:
        summary = result.compiled
        if summary is None or summary.warm is None:
            return
        if costs := break_cost_table(summary.prices, summary.warm, summary.cwd, self._printer):
            yield from ("", self._printer.paint(f"what the breaks cost in a warm call: {name}", "strong"), *costs)
            if note := _lost_in_noise(summary, result):
                yield from self._printer.labelled("note", note)
        if codes := entries_table(summary.entries, self._printer):
            yield from ("", self._printer.paint(f"compiled code in a warm call: {name}", "strong"), *codes)


def _lost_in_noise(summary: CompileSummary, result: VariantResult) -> str:
    """What is to be said where a break costs less than calls differ by without it; empty where none does."""
    spread = result.warm.spread if result.warm else 0.0
    small = [root for root, cost in summary.prices if cost.seconds < spread]
    if not small:
        return ""
    which = "each of these" if len(small) == len(summary.prices) > 1 else count(len(small), "of these breaks")
    which = "this break" if len(summary.prices) == 1 else which
    return f"calls differ by {short_duration(spread)} without it (the spread): what {which} costs is lost in that"


def _answer(comparison: VariantComparison) -> str:
    """Whether compiling pays: the fastest variant, or that none is faster. Empty where none was measured."""
    results = comparison.results
    speeds = [(speed, result) for result in results if (speed := comparison.against_eager(result))]
    if not speeds:
        return ""
    clear = [(speed.ratio, speed, result) for speed, result in speeds if not speed.noise]
    if not clear:
        return "No variant is faster or slower than eager by more than the noise."
    _, best, fastest = max(clear, key=lambda each: each[0])
    told = f"{clean_line(_name(fastest, results))} is {_speed(best)} than eager"
    if best.ratio > 1:
        return f"{told}, and pays after {_break_even(best)}."
    return f"Compiling does not pay here: {told}{', and no variant is faster' if len(speeds) > 1 else ''}."


def _name(result: VariantResult, results: Sequence[VariantResult]) -> str:
    """A variant's label. With several functions, the function's name comes first."""
    several = len({each.variant.name for each in results}) > 1
    return f"{result.variant.name}: {result.variant.label}" if several else result.variant.label


def _times(comparison: VariantComparison) -> list[Column]:
    return [
        ("first call", lambda result: short_duration(result.first[0])),
        ("warm call", lambda result: short_duration(result.warm.median) if result.warm else _MISSING),
        ("spread", lambda result: short_duration(result.warm.spread) if result.warm else _MISSING),
        ("against eager", lambda result: _against_eager(comparison.against_eager(result), _speed)),
        ("pays after", lambda result: _against_eager(comparison.against_eager(result), _break_even)),
    ]


def _against_eager(against: RelativeSpeed | None, show: Callable[[RelativeSpeed], str]) -> str:
    return "" if against is None else show(against)


def _speed(against: RelativeSpeed) -> str:
    return speed_text(against.ratio, noise=against.noise)


def _break_even(against: RelativeSpeed) -> str:
    return break_even_text(against.pays_after, noise=against.noise)


def _figures(results: Sequence[VariantResult]) -> list[Column]:
    columns: list[Column] = [
        ("first peak", lambda result: size_text(result.first_peak.host)),
        ("warm peak", lambda result: size_text(result.warm_peak.host)),
    ]
    if any(result.gpu for result in results):
        columns = [
            ("first peak", lambda result: size_text(result.first_peak.device)),
            ("warm peak", lambda result: size_text(result.warm_peak.device)),
            ("launches", lambda result: str(result.gpu.launches) if result.gpu else _MISSING),
            ("Triton", lambda result: _percent(result.gpu.triton_share if result.gpu else None)),
            ("tensor cores", lambda result: _percent(result.gpu.tensor_core_share if result.gpu else None)),
            ("cold call", lambda result: short_duration(result.gpu.cold) if result.gpu else _MISSING),
        ]
    columns += [("kernels", lambda result: f"{kernels.per_call:g}" if (kernels := kernel_counts(result)) else _MISSING)]
    return columns + [(name, _counted(name)) for name in ("graphs", "breaks", "recompiles")]


def _percent(share: float | None) -> str:
    return _MISSING if share is None else f"{share:.0%}"


def _counted(name: str) -> Callable[[VariantResult], str]:
    return lambda result: _MISSING if result.compiled is None else str(getattr(result.compiled, name))


def _compile_times() -> Iterator[Column]:
    yield "compiling", lambda result: duration(result.compiled.seconds) if result.compiled else _MISSING
    for title, part in (("Dynamo", "dynamo"), ("AOTAutograd", "aot"), ("Inductor", "inductor"), ("codegen", "codegen")):
        yield title, _part(part)


def _part(part: str) -> Callable[[VariantResult], str]:
    return lambda result: duration(dict(result.compiled.parts).get(part, 0.0)) if result.compiled else _MISSING


def _notes(comparison: VariantComparison, measured: Sequence[VariantResult]) -> Iterator[str]:
    if comparison.interrupted:
        rounds = max((len(result.rounds) for result in comparison.results), default=0)
        yield f"interrupted after {count(rounds, 'round')}; these are the results until then"
    unsure = [_speed(speed) for result in measured if (speed := comparison.against_eager(result)) and speed.noise]
    if words := [word for word in (WITHIN_NOISE, MAYBE) if any(text.startswith(word) for text in unsure)]:
        yield f"{', '.join(words)}: {_noise_note(min(len(result.rounds) for result in measured))}"
    cached = [_name(result, measured) for result in measured if result.compiled and result.compiled.cached]
    if cached:
        yield f"{', '.join(cached)}: compiled code came from torch's cache; --fresh times a compile without caches"
    if any(result.warm and result.warm.spread > result.warm.median for result in measured):
        yield (
            "the spread is larger than the median: other processes may use this machine"
            + (", or threads may wait for each other (try OMP_NUM_THREADS=1)" if comparison.threads != 1 else "")
        )
    if further := max((len(result.inputs) for result in measured), default=0):
        yield f"graphs, breaks, recompiles and compile times include {count(further, 'call')} with other inputs"
    # Notes on single variants. A note that several share is given once, with all their names.
    names_of: dict[str, list[str]] = {}
    for result in measured:
        for note in _notes_on(result.variant, result, comparison.against_eager(result)):
            names_of.setdefault(note, []).append(_name(result, measured))
    for note, names in names_of.items():
        yield f"{', '.join(names)}: {note}"
    if any(result.gpu for result in measured):
        yield "peaks: memory that torch allocated on the GPU; launches: a CUDA graph of many kernels counts as one"
        yield "Triton, tensor cores: share of the kernels' time; cold call: the GPU's cache is flushed before the call"
    elif measured:
        yield "first peak: growth of the process's memory; warm peak: what the tensors of a call held at once"
    if not any(result.gpu for result in measured) and any(kernel_counts(result) for result in measured):
        yield (
            "kernels: what one warm call runs: Inductor's kernels, those of libraries, and operators that run in Python"
        )


def _noise_note(rounds: int) -> str:
    """The note on times that overlap after so many rounds."""
    if rounds < MIN_ROUNDS:
        return f"the interquartile ranges overlap; confidence intervals need {MIN_ROUNDS} rounds (--repeat)"
    return "the confidence intervals of the medians overlap; more rounds (--repeat) narrow them"


def _notes_on(variant: Variant, result: VariantResult, speed: RelativeSpeed | None) -> Iterator[str]:
    if result.device == "cpu" and variant.backend is None and variant.mode == "reduce-overhead":
        yield "this mode adds CUDA graphs to the default mode; a CPU has none"
    if result.compiled is None:
        if variant.compiles:
            yield "not recorded: nothing is known about its compiles"
        return
    if variant.compiles and result.compiled.no_graphs:
        yield f"the timed calls ran uncompiled: {result.compiled.no_graphs}"
    yield from _library_calls(result, is_faster=speed is not None and not speed.noise and speed.ratio > 1)
    yield from (f"no CUDA graphs: {reason}" for reason in result.compiled.no_cudagraphs)
    yield from (note for note in result.compiled.notes if note != UNCOMPILED_NOTE)


def _library_calls(result: VariantResult, *, is_faster: bool) -> Iterator[str]:
    """That next to all of a call is kernels of libraries; of a call that is no faster, which part of it is."""
    gpu, kernels = result.gpu, result.compiled.kernels if result.compiled else None
    too = "which an uncompiled call runs too"
    if gpu is not None:
        if gpu.triton_share is not None and gpu.triton_share < _FEW_GENERATED:
            share = f"{1 - gpu.triton_share:.0%} of the kernels' time is in kernels of libraries"
            yield f"{share}, {too}: there is little to fuse"
    elif kernels is not None and kernels.extern and not kernels.uncompiled:
        of = list_some([*dict.fromkeys(f"`{n}`" if is_custom_operator(n) else "libraries" for n in kernels.names)])
        if not kernels.generated:
            calls = count(round(kernels.extern), "call")
            yield f"all that a call runs is {calls} of {of}, {too}: there is little to fuse"
        elif not is_faster:
            part = f"{kernels.extern:g} of the {kernels.total:g} kernels of a call"
            yield f"an uncompiled call runs {part} too (from {of}): compiling changes only the others"


def _break_and_run_pattern(result: VariantResult) -> object:
    """The breaks of a variant and the compiled code that it runs. None if it runs one compiled code only."""
    summary = result.compiled
    if summary is None or summary.warm is None or len(summary.entries) < 2:
        return None
    sites = frozenset((root.span, root.gb_type) for root, _ in summary.prices)
    return sites, tuple((entry.compile.function, entry.calls, entry.run) for entry in summary.entries)


_COMPILE_PARTS = ("dynamo", "aot", "inductor", "codegen", "other")


@dataclass(frozen=True, slots=True)
class WarmCall:
    """Quartiles of the seconds of a warm call, over ``blocks`` of calls, and an interval for its time."""

    low: float
    median: float
    high: float
    iqr: float
    blocks: int
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Peaks in bytes."""

    first_calls: Peak
    warm_calls: Peak


class KernelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of one call, and how they were counted. What the way of counting does not give is null."""

    per_call: float
    source: str = msgspec.field(name="from")
    generated: float | None = None
    extern: float | None = None
    uncompiled: float | None = None
    kernels: int | None = None
    launches: int | None = None
    triton_share: float | None = None
    tensor_core_share: float | None = None
    cold: float | None = None


@dataclass(frozen=True, slots=True)
class ProfiledCall:
    """The profiled warm calls: how many, and the median seconds of one, in all and outside of compiled code."""

    calls: int
    seconds: float
    outside: float


@dataclass(frozen=True, slots=True)
class BreakCost(CallCost):
    """What a break costs in a warm call, and where it is."""

    gb_id: str | None
    gb_type: str
    file: str | None
    line: int | None
    column: int | None
    function: str | None


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """A compiled code: how often a warm call runs it, and the seconds in which its guards are checked each time."""

    compile_id: str
    function: str | None
    file: str | None
    line: int | None
    calls: float
    guards: int | None
    guard_seconds: float | None
    run_again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRow:
    """One variant. Times are in seconds; what was not measured or compiled is null."""

    variant: str
    name: str
    mode: str
    backend: str | None
    amp: str | None
    dynamic: bool | None
    step: str
    failure: Signature | None
    first_call: float | None
    first_calls: tuple[float, ...]
    warm_call: WarmCall | None
    rounds: int
    against_eager: RelativeSpeed | None
    memory: PeakMemory
    kernels: KernelCounts | None
    compile_seconds: dict[str, float] | None
    graphs: int | None
    breaks: int | None
    recompiles: int | None
    cached: bool | None
    no_cudagraphs: tuple[str, ...] | None
    profiled_call: ProfiledCall | None
    break_costs: tuple[BreakCost, ...]
    entries: tuple[CodeEntry, ...]
    inputs: tuple[float, ...]
    recording: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDocument(CommandDocument):
    """The JSON document of ``dynadiag compare``."""

    target: str
    device: str | None
    threads: int | None
    interrupted: bool
    rows: tuple[VariantRow, ...]


def compare_document(comparison: VariantComparison, target: str) -> CompareDocument:
    """The document of a comparison of the variants of ``target``."""
    return CompareDocument(
        torch=comparison.torch,
        target=target,
        device=comparison.device,
        threads=comparison.threads,
        interrupted=comparison.interrupted,
        rows=tuple(_row(result, comparison.against_eager(result)) for result in comparison.results),
    )


def _row(result: VariantResult, against: RelativeSpeed | None) -> VariantRow:
    variant, summary = result.variant, result.compiled
    warm = summary.warm if summary else None
    return document_of(
        VariantRow,
        variant,
        variant=variant.label,
        failure=result.failure,
        first_call=result.first[0] if result.first else None,
        first_calls=result.first,
        warm_call=_warm_call(result),
        rounds=len(result.rounds),
        against_eager=against,
        memory=PeakMemory(result.first_peak, result.warm_peak),
        kernels=kernel_counts(result),
        compile_seconds=_compile_seconds(summary) if summary else None,
        graphs=summary.graphs if summary else None,
        breaks=summary.breaks if summary else None,
        recompiles=summary.recompiles if summary else None,
        cached=summary.cached if summary else None,
        no_cudagraphs=summary.no_cudagraphs if summary else None,
        profiled_call=ProfiledCall(warm.calls, warm.seconds, warm.outside) if warm else None,
        break_costs=tuple(_break_cost(*each) for each in summary.prices) if summary and warm else (),
        entries=tuple(map(_code_entry, summary.entries)) if summary and warm else (),
        inputs=result.inputs,
        recording=None if result.recording is None else str(result.recording),
    )


def _warm_call(result: VariantResult) -> WarmCall | None:
    warm = result.warm
    if warm is None:
        return None
    return WarmCall(warm.low, warm.median, warm.high, warm.spread, len(result.times), result.confidence_interval)


def kernel_counts(result: VariantResult) -> KernelCounts | None:
    """The kernels of one call: by torch's profiler on a GPU, else by the code that ran; None if that is not known."""
    gpu, summary = result.gpu, result.compiled
    if gpu is not None:
        return KernelCounts(per_call=gpu.kernels, source="torch.profiler", **msgspec.to_builtins(gpu))
    if summary is None or summary.kernels is None:
        return None
    counts = {name: number for name, number in asdict(summary.kernels).items() if name != "names"}
    return KernelCounts(per_call=summary.kernels.total, source="profile and generated code", **counts)


def _compile_seconds(summary: CompileSummary) -> dict[str, float]:
    return {"total": summary.seconds, **dict.fromkeys(_COMPILE_PARTS, 0.0), **dict(summary.parts)}


def _break_cost(root: Break, cost: CallCost) -> BreakCost:
    span = root.span
    place = (root.gb_id, root.gb_type, span.file, span.line, span.column, root.function)
    return BreakCost(cost.seconds, cost.guard, cost.entries, cost.graphs, cost.operators, cost.launches, *place)


def _code_entry(entry: CacheEntryRun) -> CodeEntry:
    code = entry.compile
    return CodeEntry(
        code.compile_id, code.function, code.file, code.line, entry.calls, code.guards, entry.guard, entry.run
    )
