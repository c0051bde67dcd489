"""The JSON document of a comparison: one row for each variant, in the order of the table."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dynadiag.compare.comparison import VariantComparison
from dynadiag.compare.compile_summary import CompileSummary
from dynadiag.compare.variant_result import Peak, RelativeSpeed, VariantResult
from dynadiag.explanation.runtime_cost import CacheEntryRun, CallCost
from dynadiag.recording.records import Break
from dynadiag.render.json_document import CommandDocument, document_of
from dynadiag.trial.signature import Signature

__all__ = ["CompareDocument", "KernelCounts", "compare_document", "kernel_counts"]

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

    per_call: int
    source: str = msgspec.field(name="from")
    generated: int | None = None
    extern: int | None = None
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
    """The kernels of one call: by torch's profiler on a GPU, else in the generated code; None if there is none."""
    gpu, summary = result.gpu, result.compiled
    if gpu is not None:
        return KernelCounts(per_call=gpu.kernels, source="torch.profiler", **msgspec.to_builtins(gpu))
    if summary is None or not summary.generated + summary.extern:
        return None
    return KernelCounts(
        per_call=summary.generated + summary.extern,
        source="generated code",
        generated=summary.generated,
        extern=summary.extern,
    )


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
