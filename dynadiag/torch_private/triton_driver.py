"""A Triton driver for machines without a GPU. Read in Triton 3.6.0 and 3.9.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from dynadiag.torch_private.gpu_specs import GpuSpec


class CodegenOnlyDriver(DriverBase):
    """Names a GPU to generate code for. It cannot launch kernels. ``tensor_device`` is the device of the tensors."""

    # Not the base class's: a GPU's own asks its driver
    def __init__(self, device: GpuSpec, tensor_device: str) -> None:
        self._target = GPUTarget("cuda", device.major * 10 + device.minor, device.warp_size)
        self._tensor_device = torch.device(tensor_device)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return self._tensor_device

    def get_benchmarker(self) -> Callable[..., Any]:
        raise NotImplementedError("a kernel that no GPU runs has no time worth measuring")

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: Any = None) -> int:
        return 0
