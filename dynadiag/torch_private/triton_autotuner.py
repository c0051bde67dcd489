"""What Inductor's autotuners know of the Triton kernels that this process has built.

Read in torch 2.11.0, 2.13.0 and 2.15.0.

A generated module has one autotuner (``CachingAutotuner``) a kernel. Once a kernel has run there is one launcher left,
that of the configuration that was chosen, and Triton's cache has a folder of that binary's stages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["TritonBinary", "built_kernels", "pin_configurations"]


@dataclass(frozen=True, slots=True)
class TritonBinary:
    """A kernel as built: ``folder`` is where Triton keeps its stages, ``file`` the source that these name.

    ``registers`` a thread, ``spills`` of registers (both from the driver), ``shared`` memory in bytes a block.
    """

    name: str
    file: str
    folder: Path | None
    registers: int | None
    spills: int | None
    shared: int | None
    configuration: dict[str, str]


def built_kernels(module: str) -> Iterator[TritonBinary]:
    """The kernels of a generated module, by its file, that were built and have run in this process."""
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
    """Have the kernels of a loaded module run in these configurations, each value as text, and not tuned again.

    A kernel that is never tried in such a configuration here is tuned as always.
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
    """As text: that is how a recording has it."""
    named = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return {name: str(value) for name, value in named.items()}


def _binary(name: str, tuner: Any, launcher: Any) -> TritonBinary:
    key = getattr(launcher, "cache_hash", None)
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir  # loaded: the autotuners are there

    return TritonBinary(
        name,
        tuner.filename or "",  # its function is gone where the kernel was compiled elsewhere, or came out of the cache
        Path(triton_cache_dir(tuner.triton_meta.get("device", 0)), key) if key else None,
        launcher.n_regs,
        launcher.n_spills,
        launcher.shared,
        _configuration_text(launcher.config),
    )
