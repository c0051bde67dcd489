"""What Inductor's autotuners know about the Triton kernels that this process compiled.

Read in torch 2.11.0, 2.13.0 and 2.15.0.

A generated module has one autotuner (``CachingAutotuner``) per kernel. After a kernel's first run, one launcher is
left, that of the chosen configuration. Triton's cache has a folder with the stages of that binary.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class TritonBinary:
    """A compiled kernel. `folder` is Triton's folder of its stages, `file` the source file that they refer to.

    `registers` is per thread. `spills` counts spilled registers (both from the driver). `shared` is in bytes per block.
    """

    name: str
    file: str
    folder: Path | None
    registers: int | None
    spills: int | None
    shared: int | None
    configuration: dict[str, str]


def built_kernels(module: str) -> Iterator[TritonBinary]:
    """Yield the kernels of a generated module, named by its file, that this process compiled and ran."""
    codecache = sys.modules.get("torch._inductor.codecache")
    heuristics = sys.modules.get("torch._inductor.runtime.triton_heuristics")
    if codecache is None or heuristics is None:
        return
    for loaded in codecache.PyCodeCache.modules:
        if getattr(loaded, "__file__", None) == module:
            for name, value in list(vars(loaded).items()):
                if isinstance(value, heuristics.CachingAutotuner) and len(value.launchers) == 1:
                    yield _binary(name, value, value.launchers[0])
            return


def pin_configurations(module: Any, chosen: Mapping[str, Mapping[str, str]]) -> None:
    """Make the kernels of a loaded module run in these configurations, without autotuning.

    Configurations have their values as text. A kernel that does not have such a configuration here is tuned as usual.
    """
    heuristics = sys.modules.get("torch._inductor.runtime.triton_heuristics")
    for name, configuration in chosen.items():
        tuner = getattr(module, name, None)
        if heuristics is not None and isinstance(tuner, heuristics.CachingAutotuner):
            if not tuner.launchers:
                tuner.precompile()
            alike = [one for one in tuner.launchers if _configuration_text(one.config) == configuration]
            tuner.launchers = alike[:1] or tuner.launchers


def _configuration_text(config: Any) -> dict[str, str]:
    """A configuration with its values as text, as recordings have it."""
    named = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return {name: str(value) for name, value in named.items()}


def _binary(name: str, tuner: Any, launcher: Any) -> TritonBinary:
    key = getattr(launcher, "cache_hash", None)
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir  # loaded: the autotuners are there

    return TritonBinary(
        name,
        tuner.filename or "",  # None if a compile worker compiled the kernel, or it came from the cache
        Path(triton_cache_dir(tuner.triton_meta.get("device", 0)), key) if key else None,
        launcher.n_regs,
        launcher.n_spills,
        launcher.shared,
        _configuration_text(launcher.config),
    )
