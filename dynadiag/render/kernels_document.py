"""The JSON documents of `dynadiag kernels`: the list of a recording, and the changes between two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.stages import CompiledStages
from dynadiag.kernels.timing import KernelTimes, Roofline
from dynadiag.recording.reader import Recording
from dynadiag.render.json_document import CommandDocument, document_of

__all__ = ["KernelsDocument", "kernels_document"]


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
        measured=_measurement(roofline.times) if roofline.times is not None else None,
        target=stages.target if stages else None,
        facts=stages.properties if stages else None,
        notes=stages.notes if stages else (),
        stages={name: StageEntry(each.text, each.lines) for name, each in stages.stages.items()} if stages else None,
    )


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
        wrapper_call=call.text if whole else None,
        source=call.definition.source if whole and call.definition else None,
    )
