"""Properties of GPUs, for code that is generated or compiled on a machine without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynadiag.errors import DynadiagError


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """The properties of an NVIDIA GPU, named as in ``torch.cuda.get_device_properties``."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int = 65536
    max_threads_per_block: int = 1024
    warp_size: int = 32

    @property
    def architecture(self) -> str:
        """Its architecture, as Triton and CUDA name it: ``sm_90``."""
        return f"sm_{self.major}{self.minor}"


# Only the h200's figures were read on the device. The others are UNCHECKED: they were written from memory, and each
# names the source to compare it with. For threads and registers of a multiprocessor that is the
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
GPU_SPECS: Mapping[str, GpuSpec] = {
    "a100": GpuSpec("NVIDIA A100-SXM4-80GB", 8, 0, 108, 2048),  # paper "NVIDIA A100 Tensor Core GPU Architecture"
    "a10": GpuSpec("NVIDIA A10", 8, 6, 72, 1536),  # datasheet: 9,216 CUDA cores, of which a multiprocessor has 128
    "l4": GpuSpec("NVIDIA L4", 8, 9, 58, 1536),  # datasheet: 7,424 CUDA cores, 128 each
    "l40s": GpuSpec("NVIDIA L40S", 8, 9, 142, 1536),  # datasheet: 18,176 CUDA cores, 128 each
    "rtx4090": GpuSpec("NVIDIA GeForce RTX 4090", 8, 9, 128, 1536),  # paper "NVIDIA Ada GPU Architecture"
    "h100": GpuSpec("NVIDIA H100 80GB HBM3", 9, 0, 132, 2048),  # paper "NVIDIA H100 Tensor Core GPU Architecture"
    "h200": GpuSpec("NVIDIA H200", 9, 0, 132, 2048),  # read on the device, as Inductor writes it into each kernel
}


def gpu_spec(name: str) -> GpuSpec:
    """The properties of a GPU by its short name (``h100``). Raises `DynadiagError` for one that is not known."""
    found = GPU_SPECS.get(name.lower())
    if found is None:
        raise DynadiagError(f"no GPU {name!r} is known to generate for: known are {', '.join(GPU_SPECS)}")
    return found
