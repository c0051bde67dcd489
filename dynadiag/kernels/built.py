"""The Triton kernels that the recorded run compiled: their stages, registers, shared memory and occupancy.

The recorder writes one ``dynadiag_triton`` event per kernel when the program ends. Reading them compiles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dynadiag.kernels.known import Recorded
from dynadiag.kernels.linetable import read_stage
from dynadiag.kernels.occupancy import occupancy
from dynadiag.recording.names import TRITON_TEXTS
from dynadiag.recording.reader import Recording

__all__ = ["Builds", "Built", "cubin_of", "stages_of"]

EVENT = "dynadiag_triton"


@dataclass(frozen=True, slots=True)
class Built:
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


class Builds:
    """The Triton artifacts of a recording, by the event of the generated module and the kernel's name."""

    def __init__(self, recording: Recorded) -> None:
        self._recording = recording

    @cached_property
    def _found(self) -> Mapping[tuple[str, str], Built]:
        """By module file and kernel name. A module that a second compile took from the cache has the same file."""
        found: dict[tuple[str, str], Built] = {}
        for event in self._recording.events(EVENT):
            said = self._recording.metadata(event.index).get(EVENT)
            if isinstance(said, dict) and (built := _built(event.index, said)) is not None:
                found[str(said.get("module")), str(said.get("name"))] = built
        return found

    def of(self, module: int, name: str) -> Built | None:
        """Return the artifact of a kernel of the module with this event, or None."""
        if not self._found:
            return None
        said = self._recording.metadata(module).get("inductor_output_code")
        return self._found.get((str(said.get("file_path")), name)) if isinstance(said, dict) else None


def stages_of(recording: Recording, built: Built) -> dict[str, dict[str, Any]]:
    """Return the stages with their line tables, without SASS, in the form of `stages.Stage`.

    Damaged data is left out.
    """
    return dict(_read(_payload(recording, built), built.source))


def cubin_of(recording: Recording, built: Built) -> str | None:
    """Return the NVIDIA machine code in base 64, or None when the recording does not have it."""
    kept = _payload(recording, built)
    return code if isinstance(code := kept.get("cubin"), str) else None


def _payload(recording: Recording, built: Built) -> Mapping[str, Any]:
    try:
        kept = json.loads(recording.payload(built.event))
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _read(kept: Mapping[str, Any], source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for stage in TRITON_TEXTS:
        if isinstance(text := kept.get(stage), str):
            shown, lines = read_stage(stage, text, source)
            yield stage, {"text": shown, "lines": lines}


def _built(event: int, said: Mapping[str, Any]) -> Built | None:
    """Parse one event. Returns None when it is not in the form that the recorder writes."""
    backend, arch = _target(said.get("target"))
    warps, registers, shared = (_count(said.get(name)) for name in ("warps", "registers", "shared"))
    known = backend == "cuda" and None not in (warps, registers, shared)
    configuration = said.get("configuration")
    if not isinstance(said.get("source"), str) or not isinstance(configuration, dict):
        return None
    return Built(
        event,
        f"sm_{arch}" if backend == "cuda" else None if arch is None else str(arch),
        registers,
        _count(said.get("spills")),
        shared,
        warps,
        occupancy(arch, warps or 0, registers or 0, shared or 0) if known and isinstance(arch, int) else None,
        {str(name): str(value) for name, value in configuration.items()},
        said["source"],
    )


def _target(said: Any) -> tuple[str | None, int | str | None]:
    """Parse Triton's ``{"backend": "cuda", "arch": 90, "warp_size": 32}``."""
    if not isinstance(said, dict):
        return None, None
    backend, arch = said.get("backend"), said.get("arch")
    return (backend if isinstance(backend, str) else None), (arch if isinstance(arch, int | str) else None)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
