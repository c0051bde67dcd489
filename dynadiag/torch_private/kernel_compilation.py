"""Inductor's private names for compiling a kernel to its stages. Read in torch 2.11.0, 2.13.0 and 2.15.0."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from dynadiag.torch_private.gpu_specs import GpuSpec


def prepare_compile_only(backend: str, arch: int | str, warp_size: int, device: GpuSpec) -> None:
    """Make generated modules importable on a machine without their device, so that they can be compiled.

    ``device`` has what Inductor's heuristics need for kernels that were generated without a GPU.
    """
    import torch
    from torch._inductor.runtime import hints, triton_helpers

    original = hints.DeviceProperties
    make = original.__new__

    def properties(kind: type[Any], **given: Any) -> Any:
        """The properties that the module was generated with. If that was without a GPU, those of the target."""
        if given.get("type") in ("cpu", None):
            known = {name: value for name, value in dataclasses.asdict(device).items() if name in original._fields}
            given = {**given, **known, "type": backend, "index": 0, "cc": arch}
            if "warp_size" in original._fields:
                given["warp_size"] = warp_size
            if "major" in original._fields:
                given["major"] = arch // 10 if isinstance(arch, int) else None
        return make(kind, **given)

    original.__new__ = staticmethod(properties)  # the class itself stays, because torch makes isinstance checks
    if backend == "cuda":
        torch.cuda.is_available = lambda: True  # the heuristics of 2.11 call it to choose the warps of some reductions
    for name in ("set_driver_to_gpu", "set_driver_to_cpu"):
        setattr(triton_helpers, name, lambda: None)


def triton_compile_arguments(tuner: Any, config: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of ``ASTSource`` and the options of ``triton.compile`` that Inductor's autotuner uses."""
    meta = tuner._create_compile_meta(config)
    options = tuner._create_compile_options(config, meta)
    return (tuner.fn, meta["signature"], meta["constants"], meta["configs"][0]), options


def cpp_compile_command(source: str, output: str) -> list[str]:
    """Return Inductor's compile command for a C++ kernel on this machine, for an object file with source lines."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    options = cpp_builder.CppTorchDeviceOptions(vec_isa=cpu_vec_isa.pick_vec_isa(), device_type="cpu")
    builder = cpp_builder.CppBuilder(name="kernel", sources=source, BuildOption=options)
    words = shlex.split(builder.get_command_line())
    kept, skip = [], False
    for word in words:
        if not skip and word != "-o" and word != "-shared" and not word.startswith(("-l", "-L", "-Wl,")):
            kept.append(word)
        skip = word == "-o"
    return [*kept, "-c", "-g", "-w", "-o", output]
