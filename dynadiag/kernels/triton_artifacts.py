"""The Triton kernels that the recorded run compiled: their stages, registers, shared memory and occupancy.

The recorder writes one ``dynadiag_triton`` event per kernel when the program ends. Reading them compiles nothing.

Occupancy is the share of a multiprocessor's warps that can be resident at once. Its limits are those of the CUDA C++
Programming Guide, "Technical Specifications per Compute Capability". Registers are allocated per warp in units of 256,
and each block takes 1 KiB of shared memory besides its own (the same guide, and the occupancy calculator of Nsight
Compute).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dynadiag.kernels.line_table import Stage, parse_stage
from dynadiag.recording.json_values import json_object
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import TRITON_TEXT_STAGES

_WARP = 32  # threads
_REGISTER_UNIT = 256  # registers are allocated to a warp in this unit
_SHARED_UNIT = 128  # bytes; shared memory is allocated to a block in this unit
_RESERVED_SHARED = 1024  # bytes of shared memory that the system takes per block, since compute capability 8.0


@dataclass(frozen=True, slots=True)
class _Limits:
    """Limits of one multiprocessor: warps, blocks, bytes of shared memory, 32-bit registers."""

    warps: int
    blocks: int
    shared: int
    registers: int = 65536


_KIB = 1024
_LIMITS = {
    80: _Limits(64, 32, 164 * _KIB),
    86: _Limits(48, 16, 100 * _KIB),
    87: _Limits(48, 16, 164 * _KIB),
    89: _Limits(48, 24, 100 * _KIB),
    90: _Limits(64, 32, 228 * _KIB),
    100: _Limits(64, 32, 228 * _KIB),
    103: _Limits(64, 32, 228 * _KIB),
    120: _Limits(48, 24, 100 * _KIB),
}


def occupancy(capability: int, warps: int, registers: int, shared: int) -> float | None:
    """Return the occupancy, 0 to 1, for blocks of `warps` warps.

    `registers` is per thread, `shared` in bytes per block. `capability` is 90 for 9.0; an unknown one gives None.
    """
    limits = _LIMITS.get(capability)
    if limits is None or warps <= 0:
        return None
    by_registers = limits.registers // _round_up(max(registers, 1) * _WARP, _REGISTER_UNIT) // warps
    by_shared = limits.shared // _round_up(shared + _RESERVED_SHARED, _SHARED_UNIT)
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared) * warps / limits.warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


EVENT_KIND = "dynadiag_triton"


@dataclass(frozen=True, slots=True)
class TritonArtifact:
    """A Triton kernel as the run compiled it.

    `registers` is per thread. `spills` counts registers spilled to memory. `shared` is in bytes per block. `occupancy`
    is the share of a multiprocessor's warps that can be resident, 0 to 1.
    """

    event: int
    target: str | None  # such as "sm_90"
    registers: int | None
    spills: int | None
    shared: int | None
    warps: int | None
    occupancy: float | None
    configuration: Mapping[str, str]
    source: str  # the name of the source file that the stages refer to


class TritonArtifacts:
    """The Triton artifacts of one compile, or of all, by the event of the generated module and the kernel's name."""

    def __init__(self, recording: Recording, compile_id: str | None = None) -> None:
        self._recording, self._compile_id = recording, compile_id

    @cached_property
    def _by_kernel(self) -> Mapping[tuple[str, str], TritonArtifact]:
        """By module file and kernel name. A module that a second compile took from the cache has the same file."""
        found: dict[tuple[str, str], TritonArtifact] = {}
        for event in self._recording.events(EVENT_KIND, compile_id=self._compile_id):
            said = self._recording.metadata(event.index).get(EVENT_KIND)
            if isinstance(said, dict) and (built := _parse_artifact(event.index, said)) is not None:
                found[str(said.get("module")), str(said.get("name"))] = built
        return found

    def find(self, module: int, name: str) -> TritonArtifact | None:
        """Return the artifact of a kernel of the module with this event, or None."""
        if not self._by_kernel:
            return None
        said = self._recording.metadata(module).get("inductor_output_code")
        return self._by_kernel.get((str(said.get("file_path")), name)) if isinstance(said, dict) else None


def read_stages(recording: Recording, built: TritonArtifact) -> dict[str, Stage]:
    """Return the stages with their line tables, without SASS. Damaged data is left out."""
    kept = json_object(recording.payload(built.event))
    texts = ((stage, kept.get(stage)) for stage in TRITON_TEXT_STAGES)
    return {stage: parse_stage(stage, text, built.source) for stage, text in texts if isinstance(text, str)}


def read_cubin(recording: Recording, built: TritonArtifact) -> str | None:
    """Return the NVIDIA machine code in base 64, or None when the recording does not have it."""
    kept = json_object(recording.payload(built.event))
    return code if isinstance(code := kept.get("cubin"), str) else None


def _parse_artifact(event: int, said: Mapping[str, Any]) -> TritonArtifact | None:
    """Parse one event. Returns None when it is not in the form that the recorder writes."""
    backend, arch = _parse_target(said.get("target"))
    warps, registers, shared = (_non_negative(said.get(name)) for name in ("warps", "registers", "shared"))
    known = backend == "cuda" and None not in (warps, registers, shared)
    configuration = said.get("configuration")
    if not isinstance(said.get("source"), str) or not isinstance(configuration, dict):
        return None
    return TritonArtifact(
        event,
        f"sm_{arch}" if backend == "cuda" else None if arch is None else str(arch),
        registers,
        _non_negative(said.get("spills")),
        shared,
        warps,
        occupancy(arch, warps or 0, registers or 0, shared or 0) if known and isinstance(arch, int) else None,
        {str(name): str(value) for name, value in configuration.items()},
        said["source"],
    )


def _parse_target(said: Any) -> tuple[str | None, int | str | None]:
    """Parse Triton's ``{"backend": "cuda", "arch": 90, "warp_size": 32}``."""
    if not isinstance(said, dict):
        return None, None
    backend, arch = said.get("backend"), said.get("arch")
    return (backend if isinstance(backend, str) else None), (arch if isinstance(arch, int | str) else None)


def _non_negative(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
