"""The Triton kernels that the recorded run compiled: their stages, registers, shared memory and occupancy.

The recorder writes one ``dynadiag_triton`` event per kernel when the program ends. Reading them compiles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dynadiag.kernels.line_table import parse_stage
from dynadiag.kernels.occupancy import occupancy
from dynadiag.kernels.protocols import RecordingReader
from dynadiag.recording.reader import Recording
from dynadiag.recording.torch_names import TRITON_TEXT_STAGES

__all__ = ["TritonArtifact", "TritonArtifacts", "read_cubin", "read_stages"]

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
    """The Triton artifacts of a recording, by the event of the generated module and the kernel's name."""

    def __init__(self, recording: RecordingReader) -> None:
        self._recording = recording

    @cached_property
    def _by_kernel(self) -> Mapping[tuple[str, str], TritonArtifact]:
        """By module file and kernel name. A module that a second compile took from the cache has the same file."""
        found: dict[tuple[str, str], TritonArtifact] = {}
        for event in self._recording.events(EVENT_KIND):
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


def read_stages(recording: Recording, built: TritonArtifact) -> dict[str, dict[str, Any]]:
    """Return the stages with their line tables, without SASS, in the form of `stages.Stage`.

    Damaged data is left out.
    """
    return dict(_stage_tables(_read_payload(recording, built), built.source))


def read_cubin(recording: Recording, built: TritonArtifact) -> str | None:
    """Return the NVIDIA machine code in base 64, or None when the recording does not have it."""
    kept = _read_payload(recording, built)
    return code if isinstance(code := kept.get("cubin"), str) else None


def _read_payload(recording: Recording, built: TritonArtifact) -> Mapping[str, Any]:
    try:
        kept = json.loads(recording.payload(built.event))
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _stage_tables(kept: Mapping[str, Any], source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for stage in TRITON_TEXT_STAGES:
        if isinstance(text := kept.get(stage), str):
            shown, lines = parse_stage(stage, text, source)
            yield stage, {"text": shown, "lines": lines}


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
