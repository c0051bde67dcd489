"""The private names of torch's Inductor that the stages lean on. Read in torch 2.11.0, 2.13.0 and 2.15.0."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from dynadiag.torch_private.gpu_specs import GPU_SPECS

__all__ = ["cpp_compile_command", "prepare_compile_only", "triton_compile_arguments"]

# For kernels that were generated without a GPU: Inductor's heuristics ask for it.
_GPU_PROPERTIES = dataclasses.asdict(GPU_SPECS["h200"])


def prepare_compile_only(backend: str, arch: int | str, warp_size: int) -> None:
    """Have generated modules import on a machine without their device: no driver is asked for."""
    import torch
    from torch._inductor.runtime import hints, triton_helpers

    original = hints.DeviceProperties
    make = original.__new__

    def properties(kind: type[Any], **given: Any) -> Any:
        """The properties that the module was generated with; where that was no GPU, those of the target."""
        if given.get("type") in ("cpu", None):
            known = {name: value for name, value in _GPU_PROPERTIES.items() if name in original._fields}
            given = {**given, **known, "type": backend, "index": 0, "cc": arch}
            if "warp_size" in original._fields:
                given["warp_size"] = warp_size
            if "major" in original._fields:
                given["major"] = arch // 10 if isinstance(arch, int) else None
        return make(kind, **given)

    original.__new__ = staticmethod(properties)  # the class itself stays: torch asks whether things are of it
    if backend == "cuda":
        torch.cuda.is_available = _true  # the heuristics of 2.11 ask it for the number of warps of some reductions
    for name in ("set_driver_to_gpu", "set_driver_to_cpu"):
        setattr(triton_helpers, name, _nothing)


def _nothing() -> None:
    pass


def _true() -> bool:
    return True


def triton_compile_arguments(tuner: Any, config: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What Inductor's autotuner gives to ``ASTSource`` and as options to ``triton.compile`` for a configuration."""
    meta = tuner._create_compile_meta(config)
    options = tuner._create_compile_options(config, meta)
    return (tuner.fn, meta["signature"], meta["constants"], meta["configs"][0]), options


def cpp_compile_command(source: str, output: str) -> list[str]:
    """The command by which Inductor compiles a C++ kernel on this machine, up to an object with source lines."""
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
