"""Properties of GPUs, for code that is generated or compiled on a machine without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["GPU_SPECS", "GpuSpec"]


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """The properties of an NVIDIA GPU, named as in ``torch.cuda.get_device_properties``."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    regs_per_multiprocessor: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    warp_size: int


# Read on the device itself, as Inductor writes it into each kernel (`DeviceProperties`).
GPU_SPECS: Mapping[str, GpuSpec] = {"h200": GpuSpec("NVIDIA H200", 9, 0, 132, 65536, 2048, 1024, 32)}
