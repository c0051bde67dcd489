"""Triton kernels: TTIR, TTGIR, LLVM IR, PTX and SASS (or AMD assembly) for a target that this machine need not have."""

from __future__ import annotations

import base64
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.kernels.line_table import parse_stage
from dynadiag.recording.torch_names import TRITON_TEXT_STAGES
from dynadiag.torch_private import kernel_compilation as torch_private

_NVIDIA = re.compile(r"sm_(\d+)a?$")
_AMD = re.compile(r"gfx[0-9a-f]+$")
_USAGE = re.compile(r"REG:(\d+).*?STACK:(\d+).*?SHARED:(\d+).*?LOCAL:(\d+)")


def compile_kernel(name: str, source: str, target: str, folder: Path) -> dict[str, Any]:
    """Every stage of a kernel. Raises `DynadiagError` where Triton has no such target, or is not installed."""
    backend, arch, warp_size = _target(target)
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise DynadiagError(f"Triton is not installed here: pip install triton ({error})") from error
    torch_private.prepare_compile_only(backend, arch, warp_size)
    tuner = _load_autotuner(name, source, folder)
    configs = tuner.configs
    given, options = torch_private.triton_compile_arguments(tuner, configs[0])
    binary = triton.compile(ASTSource(*given), target=GPUTarget(backend, arch, warp_size), options=options)
    stages = {stage: binary.asm[stage] for stage in TRITON_TEXT_STAGES if stage in binary.asm}
    facts: dict[str, Any] = {
        "configuration": str(configs[0]),
        "triton": triton.__version__,
        "shared": binary.metadata.shared,
        "warps": binary.metadata.num_warps,
    }
    notes = [f"the first of the {len(configs)} configurations that autotuning tries"] if len(configs) > 1 else []
    if "cubin" in binary.asm:
        _machine_code(binary.asm["cubin"], folder, stages, facts, notes)
    return {
        "stages": {stage: _read_lines(stage, text) for stage, text in stages.items()},
        "facts": facts,
        "notes": notes,
    }


def disassemble(code: str, file: str, folder: Path) -> dict[str, Any]:
    """The SASS of a binary (base64) whose line table names ``file``, and the resources that it uses."""
    try:
        import triton  # noqa: F401 - `_tools` finds the disassembler through it
    except ImportError as error:
        raise DynadiagError(f"Triton is not installed here: pip install triton ({error})") from error
    stages: dict[str, str] = {}
    facts: dict[str, Any] = {}
    notes: list[str] = []
    _machine_code(base64.b64decode(code), folder, stages, facts, notes)
    return {
        "stages": {stage: _read_lines(stage, text, file) for stage, text in stages.items()},
        "facts": facts,
        "notes": notes,
    }


def _read_lines(stage: str, text: str, file: str = "kernel.py") -> dict[str, Any]:
    shown, lines = parse_stage(stage, text, file)
    return {"text": shown, "lines": lines}


def _target(target: str) -> tuple[str, int | str, int]:
    """``sm_90`` -> ("cuda", 90, 32). A wavefront has 64 lanes on gfx9, 32 after it."""
    if found := _NVIDIA.match(target):
        return "cuda", int(found[1]), 32
    if _AMD.match(target):
        return "hip", target, 64 if target.startswith("gfx9") else 32
    raise DynadiagError(f"no target {target!r}: Triton compiles for sm_80, sm_90, sm_100, ... and gfx942, ...")


def _load_autotuner(name: str, source: str, folder: Path) -> Any:
    """Import the kernel's source, and find its Inductor autotuner."""
    file = folder / "kernel.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("kernel", file)
    if spec is None or spec.loader is None:
        raise DynadiagError(f"{name}: its source cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if found is None:
        found = next((value for value in vars(module).values() if hasattr(value, "configs")), None)
    if not getattr(found, "configs", None):
        raise DynadiagError(f"{name}: its source defines no kernel that Inductor's autotuner knows")
    return found


def _machine_code(cubin: bytes, folder: Path, stages: dict[str, str], facts: dict[str, Any], notes: list[str]) -> None:
    """Add the SASS with its line table, and the registers, stack and local memory that the kernel uses."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    tools = _tools()
    if "nvdisasm" not in tools:
        notes.append("no SASS: the disassembler (nvdisasm) is in neither Triton's wheel nor CUDA's folder here")
    else:
        stages["sass"] = _run(tools["nvdisasm"], "--print-line-info-inline", "--print-code", str(file))
    if "cuobjdump" in tools and (usage := _USAGE.search(_run(tools["cuobjdump"], "--dump-resource-usage", str(file)))):
        facts["registers"], facts["stack"], facts["local"] = int(usage[1]), int(usage[2]), int(usage[4])


def _tools() -> dict[str, str]:
    """The disassemblers that Triton ships or has been configured with."""
    from triton import knobs

    found = {}
    for name in ("nvdisasm", "cuobjdump"):
        try:
            found[name] = getattr(knobs.nvidia, name).path
        except RuntimeError:  # Triton: "Cannot find nvdisasm"
            continue
    return found


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
