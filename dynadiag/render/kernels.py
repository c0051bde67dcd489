"""Kernels as text and as JSON: the listing, one kernel with what it was made of, a stage beside its source lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.explanation.formatting import list_lines, list_some, si_number
from dynadiag.grouping import grouped
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.line_table import Stage
from dynadiag.kernels.stages import CompiledStages
from dynadiag.kernels.timing import KernelTimes, Roofline
from dynadiag.kernels.triton_artifacts import TritonArtifact
from dynadiag.recording.reader import Recording
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.fusion_text import operators_of, refusal_texts, share_text
from dynadiag.render.json_document import CommandDocument, document_of
from dynadiag.render.paths import fit_path
from dynadiag.render.table import fitted_table
from dynadiag.render.wrap import width, wrap

_MARKS = {"cpp": "//"}
_MAX_SHARES = 8  # modules of which the listing says how far they were fused
_AFTER_ITEM = re.compile(r"(?<=[,;]) ")  # between the items of a list


def listing_text(calls: Sequence[KernelCall], roofline: Roofline, columns: int | None = None) -> str:
    """A table with a row for each call, in order. Times, and figures of built kernels, are columns if a call has them.

    If the table is wider than `columns`, operators and source lines are cut. If that is not enough, a row takes several
    lines. A name is cut only if it is wider than a line: `dynadiag kernels NAME` needs all of it.
    """
    if not calls:
        return "No kernel was recorded: Inductor compiled nothing, or a package, whose code torch does not record.\n"
    known = {"": True, "timing": roofline.times is not None, "artifact": any(call.artifact for call in calls)}
    shown = [column for column in _COLUMNS if known[column.needs]]
    lines = fitted_table(
        [column.head for column in shown],
        [tuple(column.cell(call, roofline) for column in shown) for call in calls],
        columns,
        numeric=frozenset(column.head for column in shown if column.is_numeric),
        shorten={column.head: _shorten_list for column in shown if column.is_list},
    )
    rest = _footnotes(calls) + (_peaks(roofline.times) if roofline.times else "")
    return "\n".join(lines) + "\n" + (rest if columns is None else _wrapped(rest, columns))


def _wrapped(text: str, columns: int) -> str:
    return "".join(f"{line}\n" for one in text.splitlines() for line in (wrap(one, columns) if one else [""]))


def _shorten_list(text: str, columns: int) -> str:
    """As many items of a list as fit, each whole. If even the first does not fit, its middle is cut, never its line.

    >>> _shorten_list("program.py:103, 104; net.py:4?", 23)
    'program.py:103, 104; …?'
    >>> _shorten_list("program.py:103, 104", 16)
    'prog…m.py:103, …'
    """
    if width(text) <= columns:
        return text
    end = "?" if text.endswith("?") else ""
    first, *more = _AFTER_ITEM.split(text.removesuffix(end))
    if not more:
        return fit_path(first, columns - len(end)) + end
    room = columns - len(f" …{end}")
    shown = fit_path(first[:-1], room - 1) + first[-1]
    for item in more:
        if width(f"{shown} {item}") > room:
            break
        shown += f" {item}"
    return f"{shown} …{end}"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the listing. It ``needs`` a "timing" or an "artifact", or is always shown. A list may be cut."""

    head: str
    cell: Callable[[KernelCall, Roofline], str]
    needs: str = ""
    is_numeric: bool = False
    is_list: bool = False


def _time(call: KernelCall, roofline: Roofline) -> str:
    time = roofline.time_of(call)
    return _microseconds(time.seconds) if time else "?"


def _peak_share(call: KernelCall, roofline: Roofline) -> str:
    share = roofline.peak_share(call)
    return "?" if share is None else f"{share:.0%}"


def _name(call: KernelCall, _roofline: Roofline) -> str:
    return clean_line(call.name) + (f" #{call.call_number}" if call.call_number > 1 else "")


def _microseconds(seconds: float) -> str:
    """Three digits: ``12.3 µs``."""
    value = seconds * 1e6
    return f"{value:.0f} µs" if value >= 99.95 else f"{value:.3g} µs"


def _artifact_cell(figure: Callable[[TritonArtifact], str]) -> Callable[[KernelCall, Roofline], str]:
    """The cell of a figure of the built kernel."""
    return lambda call, _: "" if call.artifact is None else figure(call.artifact)


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _occupancy(built: TritonArtifact) -> str:
    return "?" if built.occupancy is None else f"{built.occupancy:.0%}"


def _peaks(timing: KernelTimes) -> str:
    """The peaks that the shares are relative to, and the modules that could not be run."""
    products = ", ".join(f"{clean_line(dtype)} {si_number(most)}" for dtype, most in timing.peaks.product_flops.items())
    vector = "" if timing.peaks.vector_flops is None else f", else {si_number(timing.peaks.vector_flops)}"
    lines = [
        f"measured on {clean_line(timing.device)}, torch {clean_line(timing.torch)}: "
        f"it moves {si_number(timing.peaks.bytes_per_second)}B/s; operations a second in matrix products: "
        f"{products}{vector}",
        "a share above 100%: the data came out of a cache",
        *(f"a module could not be run: {clean_line(why)}" for why in timing.errors.values()),
    ]
    return "".join(f"\n{line}" for line in lines) + "\n"


def _lines(call: KernelCall, _roofline: Roofline) -> str:
    """``block.py:18, 19``, with a question mark if the lines were inferred from the generated code."""
    shown = clean_line(list_lines((place.file, place.line) for place in call.source_lines or call.view_lines))
    return (shown + ("?" if call.evidence == "dataflow" else "")) or "no mapping"


# To add a column, add it here and to `kernels_document.KernelEntry`.
_COLUMNS = (
    _Column("time", _time, needs="timing", is_numeric=True),
    _Column("of peak", _peak_share, needs="timing", is_numeric=True),
    _Column("compile", lambda call, _: clean_line(call.compile_id)),
    _Column("graph", lambda call, _: call.stage or "?"),
    _Column("language", lambda call, _: clean_line(call.language)),
    _Column("kernel", _name),
    _Column("computes", lambda call, _: clean_line(list_some(call.ops)) or "no mapping", is_list=True),
    _Column("lines", _lines, is_list=True),
    _Column("bytes", lambda call, _: si_number(call.cost.bytes_moved), is_numeric=True),
    _Column("flops", lambda call, _: si_number(call.cost.flops), is_numeric=True),
    _Column("bound", lambda call, roofline: roofline.bound_of(call) or "?"),
    _Column("regs", _artifact_cell(lambda built: _count(built.registers)), needs="artifact", is_numeric=True),
    _Column("spills", _artifact_cell(lambda built: _count(built.spills)), needs="artifact", is_numeric=True),
    _Column("shared", _artifact_cell(lambda built: _count(built.shared)), needs="artifact", is_numeric=True),
    _Column("occupancy", _artifact_cell(_occupancy), needs="artifact", is_numeric=True),
)


def _footnotes(calls: Sequence[KernelCall]) -> str:
    """The lines below the table: how far operators were fused, reasons of fallbacks, what a question mark means."""
    notes = [f"compile {one.compile_id}, {one.stage or 'graph unknown'}: {text}" for one, text in _shares(calls)]
    notes += list(dict.fromkeys(f"{call.name} is a fallback: {call.fallback}." for call in calls if call.fallback))
    if any(call.evidence == "dataflow" for call in calls):
        notes.append(
            "? after lines: inferred from the generated code, because the recording does not say (a cache hit, or a "
            "log that was made without dynadiag)."
        )
    return "".join(f"\n{clean_line(note)}" for note in notes) + ("\n" if notes else "")


def _shares(calls: Sequence[KernelCall]) -> Iterator[tuple[KernelCall, str]]:
    """The first call of each module, and how far its operators were fused; of many modules the first ones."""
    events = list(dict.fromkeys(call.event for call in calls))
    for event in events[:_MAX_SHARES]:
        same = [call for call in calls if call.event == event]
        if text := share_text(same):
            yield same[0], text


def kernel_text(calls: Sequence[KernelCall], roofline: Roofline) -> str:
    """The source of a kernel, below what is known about it in comments of its language, so that it stays source."""
    call = calls[0]
    mark = _MARKS.get(call.language, "#")
    facts = [line for one in calls for line in _details(one, roofline)]
    head = "".join(f"{mark} {clean_line(line)}\n" for line in facts)
    if call.definition is None:
        return head + clean("".join(f"{one.text}\n" for one in calls))
    return head + clean(call.definition.source)


def _details(call: KernelCall, roofline: Roofline) -> list[str]:
    cache = f", FX graph cache {call.cache}" if call.cache else ""
    facts = [f"{call.name}: compile {call.compile_id}, {call.stage or 'graph unknown'}, call {call.call_number}{cache}"]
    facts.append(f"  called in line {call.line} of the generated module: {call.text}")
    if call.grid:
        facts.append(f"  launch grid from {call.grid}")
    if call.partition:
        facts.append(f"  in CUDA graph {call.partition}")
    facts.append(
        f"  lines: {', '.join(map(_location, call.source_lines or call.view_lines)) or 'no mapping'}{_evidence(call)}"
    )
    facts.append(f"  nodes: {', '.join(call.nodes) or 'no mapping'}")
    if call.enclosing_nodes:
        facts.append(f"  in a branch or loop of: {', '.join(call.enclosing_nodes)}")
    if call.dynamo_nodes:
        facts.append(f"  made from Dynamo's: {', '.join(call.dynamo_nodes)}")
    if call.fallback:
        facts.append(f"  a fallback: {call.fallback}")
    facts += [f"  {text}" for text in refusal_texts(call)]
    moved = f"reads {si_number(call.cost.bytes_read)}B, writes {si_number(call.cost.bytes_written)}B"
    bound = roofline.bound_of(call)
    bound_by = f"bound by {bound}" if bound else "what bounds it is not known"
    facts.append(f"  {moved}, {si_number(call.cost.flops)} operations; {bound_by}")
    if time := roofline.time_of(call):
        share = roofline.peak_share(call)
        of_peak = "" if share is None else f", {share:.0%} of the device's peak"
        ran = f": {', '.join(time.device_kernels)}" if time.device_kernels else ""
        facts.append(f"  takes {_microseconds(time.seconds)}{of_peak}{ran}")
    elif roofline.times and call.enclosing_nodes and call.event not in roofline.times.errors:
        facts.append("  not timed: the random inputs lead past its branch or loop")
    return facts + _built_facts(call)


def _built_facts(call: KernelCall) -> list[str]:
    """How the recorded run built the kernel, and what it takes of the device."""
    if (built := call.artifact) is None:
        return []
    chosen = ", ".join(f"{name}={value}" for name, value in built.configuration.items())
    return [
        f"  built for {built.target or '?'} with {chosen}",
        f"  {_count(built.registers)} registers a thread, {_count(built.spills)} spilled, "
        f"{_count(built.shared)} bytes of shared memory; occupancy {_occupancy(built)}",
    ]


def _location(place: SourceLine) -> str:
    return f"{place.file}:{place.line}"


def _evidence(call: KernelCall) -> str:
    texts = {"comment": " (the generated code says so)", "around": " (of the branch or loop around it)"}
    return {**texts, "scheduler": "", "none": ""}.get(call.evidence, " (inferred from the generated code)")


def stage_text(stage: Stage, stages: CompiledStages) -> str:
    """A stage, with the line of the kernel's source before each of its lines, below what the compiler reported."""
    facts = [f"{stage.name} for {stages.target}", *(f"{name}: {value}" for name, value in stages.properties.items())]
    head = "".join(f"; {clean_line(line)}\n" for line in [*facts, *stages.notes])
    sources = grouped(stage.lines)
    body = [
        f"{','.join(map(str, sources.get(number, ()))):>5} | {clean(line)}".rstrip()
        for number, line in enumerate(stage.text.splitlines(), 1)
    ]
    return head + "\n".join(body) + "\n"


@dataclass(frozen=True, slots=True)
class RefusalEntry:
    """A call of the same module that the scheduler considered to fuse with this one, and did not.

    It ``comes`` "before" or "after" this one; ``reason`` is in torch's words.
    """

    name: str
    call: int
    comes: str
    reason: str


@dataclass(frozen=True, slots=True)
class FusionEntry:
    """How many operators of a graph run as how many calls."""

    compile_id: str
    graph: str | None
    operators: int
    calls: int


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """One call of a kernel. Sizes are in bytes; ``seconds`` is of one call.

    ``mapping`` says where the nodes are known from, as `KernelCall.evidence`. ``wrapper_call`` and ``source`` are null
    in the list of a whole recording.
    """

    compile_id: str
    name: str
    language: str
    graph: str | None
    call: int
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    views: tuple[str, ...]
    dynamo_nodes: tuple[str, ...]
    lines: tuple[SourceLine, ...]
    mapping: str
    around: tuple[str, ...]
    grid: str | None
    bytes_read: int | None
    bytes_written: int | None
    flops: int | None
    bound: str | None
    seconds: float | None
    device_kernels: tuple[str, ...]
    peak_share: float | None
    registers: int | None
    spills: int | None
    shared_memory: int | None
    occupancy: float | None
    configuration: Mapping[str, str] | None
    cache: str | None
    partition: str | None
    fallback: str | None
    not_fused: tuple[RefusalEntry, ...]
    wrapper_call: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class ModuleError:
    """Why the module of an event could not be measured."""

    event: int
    error: str


@dataclass(frozen=True, slots=True)
class MeasurementDocument:
    """Where the times were measured, and the peaks of that device."""

    device: str
    torch: str
    bytes_per_second: float
    flops_per_second: dict[str, float | None]
    errors: tuple[ModuleError, ...]


@dataclass(frozen=True, slots=True)
class StageEntry:
    """The text of a stage, and pairs (line of the text, line of the kernel's source)."""

    text: str
    lines: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsDocument(CommandDocument):
    """The calls, most expensive first. ``target``, ``facts``, ``notes`` and ``stages`` are those of ``--stage``."""

    kernels: tuple[KernelEntry, ...]
    fusion: tuple[FusionEntry, ...] = ()
    measured: MeasurementDocument | None = None
    target: str | None = None
    facts: dict[str, str | int] | None = None
    notes: tuple[str, ...] = ()
    stages: dict[str, StageEntry] | None = None


def kernels_document(
    recording: Recording, calls: Sequence[KernelCall], roofline: Roofline, stages: CompiledStages | None, *, whole: bool
) -> KernelsDocument:
    """The document of some calls. With ``whole`` it has their sources."""
    return KernelsDocument(
        torch=recording.run.torch,
        kernels=tuple(_entry(call, roofline, whole=whole) for call in calls),
        fusion=tuple(_fusion(calls)),
        measured=_measurement(roofline.times) if roofline.times is not None else None,
        target=stages.target if stages else None,
        facts=stages.properties if stages else None,
        notes=stages.notes if stages else (),
        stages={name: StageEntry(each.text, each.lines) for name, each in stages.stages.items()} if stages else None,
    )


def _fusion(calls: Sequence[KernelCall]) -> Iterator[FusionEntry]:
    for event in dict.fromkeys(call.event for call in calls):
        same = [call for call in calls if call.event == event]
        yield FusionEntry(same[0].compile_id, same[0].stage, operators_of(same), len(same))


def _measurement(times: KernelTimes) -> MeasurementDocument:
    peaks = times.peaks
    rates = {**peaks.product_flops, "vector": peaks.vector_flops}
    errors = tuple(ModuleError(event, why) for event, why in times.errors.items())
    return MeasurementDocument(times.device, times.torch, peaks.bytes_per_second, rates, errors)


def _entry(call: KernelCall, roofline: Roofline, *, whole: bool) -> KernelEntry:
    time, artifact = roofline.time_of(call), call.artifact
    return document_of(
        KernelEntry,
        call,
        graph=call.stage,
        call=call.call_number,
        lines=call.source_lines or call.view_lines,
        mapping=call.evidence,
        around=call.enclosing_nodes,
        bytes_read=call.cost.bytes_read,
        bytes_written=call.cost.bytes_written,
        flops=call.cost.flops,
        bound=roofline.bound_of(call),
        seconds=time.seconds if time else None,
        device_kernels=time.device_kernels if time else (),
        peak_share=roofline.peak_share(call),
        registers=artifact.registers if artifact else None,
        spills=artifact.spills if artifact else None,
        shared_memory=artifact.shared if artifact else None,
        occupancy=artifact.occupancy if artifact else None,
        configuration=artifact.configuration if artifact else None,
        not_fused=tuple(RefusalEntry(one.name, one.call_number, one.comes, one.reason) for one in call.refused),
        wrapper_call=call.text if whole else None,
        source=call.definition.source if whole and call.definition else None,
    )
