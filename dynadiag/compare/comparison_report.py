"""Reports a comparison as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dynadiag import __version__
from dynadiag.compare.comparison import VariantComparison
from dynadiag.compare.document import kernel_counts
from dynadiag.compare.variant import Variant
from dynadiag.compare.variant_result import MIN_ROUNDS, RelativeSpeed, VariantResult
from dynadiag.explanation.formatting import count, duration, short_duration
from dynadiag.recording.records import UNCOMPILED_NOTE
from dynadiag.render.clean import clean_line
from dynadiag.render.components import labelled_lines
from dynadiag.render.runtime_cost import break_cost_table, entries_table
from dynadiag.render.speed_text import break_even_text, speed_text
from dynadiag.render.style import Style
from dynadiag.render.table import table
from dynadiag.render.wrap import truncate_middle, wrap_indented

__all__ = ["comparison_text"]

_MAX_NAME_WIDTH = 60  # columns of a device's name in the head
_STEPS = {"call": "called as it is", "inference": "without gradients", "train": "forward and backward"}
_BYTES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))
_MISSING = "-"

Column = tuple[str, Callable[[VariantResult], str]]


def comparison_text(comparison: VariantComparison, target: str, style: Style) -> str:
    """The tables: times, then what was compiled, then compile times by part; failures and notes below."""
    measured = [result for result in comparison.results if result.warm is not None]
    lines = [*_head(comparison, target, style), ""]
    if measured:
        lines += [*_table(measured, _times(comparison), style), "", *_table(measured, _figures(measured), style)]
    if compiled := [result for result in measured if result.compiled and result.compiled.seconds]:
        lines += ["", *_table(compiled, list(_compile_times()), style)]
    if details := _warm_call_tables([(_name(result, measured), result) for result in measured], style):
        lines += [*details, ""]
    for result in comparison.results:
        if result.failure is not None:
            lines += _failure(result, comparison, style)
    for note in _notes(comparison, measured):
        lines += labelled_lines("note", "strong", note, style)
    return "\n".join(lines) + "\n"


def _head(comparison: VariantComparison, target: str, style: Style) -> list[str]:
    torch, threads = comparison.torch, comparison.threads
    device = truncate_middle(clean_line(comparison.device or ""), _MAX_NAME_WIDTH)
    parts = [f"dynadiag {__version__}", f"torch {torch}" if torch else "torch unknown", device]
    parts += [count(threads, "thread")] if threads else []
    step = _STEPS[comparison.results[0].variant.step]
    shown = style.paint(truncate_middle(clean_line(target), style.columns - len(step) - 2), "strong")
    return [", ".join(part for part in parts if part), f"{shown}, {step}"]


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
        ("first peak", lambda result: _size(result.first_peak.host)),
        ("warm peak", lambda result: _size(result.warm_peak.host)),
    ]
    if any(result.gpu for result in results):
        columns = [
            ("first peak", lambda result: _size(result.first_peak.device)),
            ("warm peak", lambda result: _size(result.warm_peak.device)),
            ("launches", lambda result: str(result.gpu.launches) if result.gpu else _MISSING),
            ("Triton", lambda result: _percent(result.gpu.triton_share if result.gpu else None)),
            ("tensor cores", lambda result: _percent(result.gpu.tensor_core_share if result.gpu else None)),
            ("cold call", lambda result: short_duration(result.gpu.cold) if result.gpu else _MISSING),
        ]
    columns += [("kernels", lambda result: str(kernels.per_call) if (kernels := kernel_counts(result)) else _MISSING)]
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


def _table(results: Sequence[VariantResult], columns: Sequence[Column], style: Style) -> list[str]:
    names = [_name(result, results) for result in results]
    return table(names, [(title, [show(result) for result in results]) for title, show in columns], style)


def _failure(result: VariantResult, comparison: VariantComparison, style: Style) -> list[str]:
    failure = result.failure
    assert failure is not None
    message = next((line for line in failure.message.splitlines() if line.strip()), "")
    kind = f"{failure.type}: " if failure.kind == "exception" else ""
    lead = f"{clean_line(_name(result, comparison.results))}: "
    first, *rest = wrap_indented(lead, f"{kind}{message}", style.columns)
    return [style.paint(first[: len(lead) - 1], "error") + first[len(lead) - 1 :], *rest]


def _notes(comparison: VariantComparison, measured: Sequence[VariantResult]) -> Iterator[str]:
    if comparison.interrupted:
        rounds = max((len(result.rounds) for result in comparison.results), default=0)
        yield f"interrupted after {count(rounds, 'round')}; these are the results until then"
    if any((speed := comparison.against_eager(result)) and speed.noise for result in measured):
        yield _noise_note(min(len(result.rounds) for result in measured))
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
    yield from _per_variant(measured)
    if any(result.gpu for result in measured):
        yield "peaks: memory that torch allocated on the GPU; launches: a CUDA graph of many kernels counts as one"
        yield "Triton, tensor cores: share of the kernels' time; cold call: the GPU's cache is flushed before the call"
    elif measured:
        yield "peaks: growth of the process's memory, in the first calls and in warm calls"
    if not any(result.gpu for result in measured) and any(kernel_counts(result) for result in measured):
        yield "kernels: calls in the generated code, of Inductor's kernels and of library kernels"


def _noise_note(rounds: int) -> str:
    """What "within the noise" means after so many rounds."""
    if rounds < MIN_ROUNDS:
        needed = f"confidence intervals need {MIN_ROUNDS} rounds (--repeat)"
        return f"within the noise: the interquartile ranges overlap; {needed}"
    return "within the noise: the confidence intervals of the medians overlap; more rounds (--repeat) narrow them"


def _per_variant(results: Sequence[VariantResult]) -> Iterator[str]:
    """Notes on single variants. A note that several share is given once, with all their names."""
    names_of: dict[str, list[str]] = {}
    for result in results:
        for note in _notes_on(result.variant, result):
            names_of.setdefault(note, []).append(_name(result, results))
    for note, names in names_of.items():
        yield f"{', '.join(names)}: {note}"


def _notes_on(variant: Variant, result: VariantResult) -> Iterator[str]:
    if result.device == "cpu" and variant.backend is None and variant.mode == "reduce-overhead":
        yield "this mode adds CUDA graphs to the default mode; a CPU has none"
    if result.compiled is None:
        if variant.compiles:
            yield "not recorded: nothing is known about its compiles"
        return
    if variant.compiles and result.compiled.no_graphs:
        yield f"the timed calls ran uncompiled: {result.compiled.no_graphs}"
    yield from (f"no CUDA graphs: {reason}" for reason in result.compiled.no_cudagraphs)
    yield from (note for note in result.compiled.notes if note != UNCOMPILED_NOTE)


def _size(size: int | None) -> str:
    if size is None:
        return _MISSING
    scale, unit = next((pair for pair in _BYTES if size >= pair[0]), (1, "B"))
    return f"{size / scale:.3g} {unit}" if size < 1000 * scale else f"{size / scale:.0f} {unit}"


def _warm_call_tables(named: Sequence[tuple[str, VariantResult]], style: Style) -> list[str]:
    """The tables on warm calls. Variants with the same breaks and the same code share a table.

    ``named`` pairs the name of each variant with its result.
    """
    lines: list[str] = []
    shown: list[object] = []
    for name, result in named:
        if (pattern := _break_and_run_pattern(result)) and pattern not in shown:
            shown.append(pattern)
            lines += _code_tables(name, result, style)
    return lines


def _break_and_run_pattern(result: VariantResult) -> object:
    """The breaks of a variant and the compiled code that it runs. None if it runs one compiled code only."""
    summary = result.compiled
    if summary is None or summary.warm is None or len(summary.entries) < 2:
        return None
    sites = frozenset((root.span, root.gb_type) for root, _ in summary.prices)
    return sites, tuple((entry.compile.function, entry.calls, entry.run) for entry in summary.entries)


def _code_tables(name: str, result: VariantResult, style: Style) -> list[str]:
    summary = result.compiled
    assert summary is not None
    assert summary.warm is not None
    lines: list[str] = []
    if costs := break_cost_table(summary.prices, summary.warm, summary.cwd, style):
        lines += ["", style.paint(f"what the breaks cost in a warm call: {clean_line(name)}", "strong"), *costs]
    if codes := entries_table(summary.entries, style):
        lines += ["", style.paint(f"compiled code in a warm call: {clean_line(name)}", "strong"), *codes]
    return lines
