"""Compiles one kernel for a target and returns its code at each stage, in a process of its own.

``python -m dynadiag.trial.compile_stages JOB RESULT``: JOB is a `StageJob` and RESULT becomes a `CompiledStages`, both
as JSON, or ``{"error": SENTENCE}``. Compiling a Triton kernel executes its source, which is Python: the caller must
check first that the user trusts it.

A C++ kernel becomes the machine code that this machine's compiler produces with Inductor's own flags. A Triton kernel
becomes TTIR, TTGIR, LLVM IR, PTX and SASS (or AMD assembly), also for a GPU that this machine lacks.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from dynadiag.errors import DynadiagError
from dynadiag.kernels.line_table import parse_stage
from dynadiag.kernels.stages import CompiledStages, StageJob
from dynadiag.recording.records import TRITON_TEXT_STAGES
from dynadiag.torch_private import kernel_compilation as torch_private
from dynadiag.torch_private.gpu_specs import GPU_SPECS, GpuSpec

_NVIDIA = re.compile(r"sm_(\d+)a?$")
_AMD = re.compile(r"gfx[0-9a-f]+$")
_USAGE = re.compile(r"REG:(\d+).*?STACK:(\d+).*?SHARED:(\d+).*?LOCAL:(\d+)")
_TIMEOUT = 300  # seconds; a C++ kernel without precompiled headers takes about 10


def main(job: Path, result: Path) -> None:
    """Compile the kernel of a job, and write its stages or the error."""
    job = job.absolute()
    made: CompiledStages | dict[str, str]
    try:
        made = _compile(msgspec.json.decode(job.read_bytes(), type=StageJob), job.parent)
    except DynadiagError as error:
        made = {"error": str(error)}
    except subprocess.CalledProcessError as error:
        made = {"error": f"{Path(error.cmd[0]).name} failed: {(error.stderr or '').strip()[-2000:]}"}
    except Exception as error:  # noqa: BLE001 - the source is arbitrary Python, so it may raise anything
        made = {"error": f"{type(error).__name__}: {error}"[:2000]}
    result.write_bytes(msgspec.json.encode(made))


def _compile(job: StageJob, folder: Path) -> CompiledStages:
    made = {"cubin": _disassemble, "triton": _compile_triton}.get(job.language, _compile_cpp)
    return made(job, folder)


def _compile_cpp(job: StageJob, folder: Path) -> CompiledStages:
    """The machine code of a kernel with its line table. Raises `DynadiagError` if a tool is missing."""
    disassembler = shutil.which("objdump")
    if disassembler is None:
        raise DynadiagError("objdump, the disassembler, is not installed: install binutils")
    file, output = folder / "kernel.cpp", folder / "kernel.o"
    file.write_text(job.source)
    command = torch_private.cpp_compile_command(str(file), str(output))
    try:
        _run(*command)
    except FileNotFoundError as error:
        raise DynadiagError(f"the C++ compiler {command[0]} is not installed: install g++ or set CXX") from error
    listing = _run(
        disassembler, "--disassemble", "--line-numbers", "--inlines", "--no-show-raw-insn", "-C", str(output)
    )
    flags = [word for word in command[1:] if word.startswith(("-O", "-m", "-f"))]
    properties: dict[str, str | int] = {
        "compiler": _run(command[0], "--version").splitlines()[0],
        "flags": " ".join(flags),
    }
    note = "compiled here, for this machine's processor, with the flags that Inductor uses"
    return CompiledStages(job.target, {"asm": parse_stage("asm", listing, file.name)}, properties, (note,))


def _compile_triton(job: StageJob, folder: Path) -> CompiledStages:
    """Every stage of a kernel. Raises `DynadiagError` if Triton does not know the target or is not installed."""
    backend, arch, warp_size, device = _target(job.target)
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise DynadiagError(f"Triton is not installed here: pip install triton ({error})") from error
    torch_private.prepare_compile_only(backend, arch, warp_size, device)
    tuner = _load_autotuner(job.name, job.source, folder)
    configs = tuner.configs
    given, options = torch_private.triton_compile_arguments(tuner, configs[0])
    binary = triton.compile(ASTSource(*given), target=GPUTarget(backend, arch, warp_size), options=options)
    texts = {stage: binary.asm[stage] for stage in TRITON_TEXT_STAGES if stage in binary.asm}
    properties: dict[str, str | int] = {
        "configuration": str(configs[0]),
        "triton": triton.__version__,
        "shared": binary.metadata.shared,
        "warps": binary.metadata.num_warps,
    }
    notes = [f"the first of the {len(configs)} configurations that autotuning tries"] if len(configs) > 1 else []
    if "cubin" in binary.asm:
        _machine_code(binary.asm["cubin"], folder, texts, properties, notes)
    return _stages(job.target, texts, "kernel.py", properties, notes)


def _disassemble(job: StageJob, folder: Path) -> CompiledStages:
    """The SASS of a binary, and the resources that it uses."""
    try:
        import triton  # noqa: F401 - `_tools` finds the disassembler through it
    except ImportError as error:
        raise DynadiagError(f"Triton is not installed here: pip install triton ({error})") from error
    texts: dict[str, str] = {}
    properties: dict[str, str | int] = {}
    notes: list[str] = []
    _machine_code(base64.b64decode(job.source), folder, texts, properties, notes)
    return _stages(job.target, texts, job.target, properties, notes)


def _stages(
    target: str, texts: dict[str, str], file: str, properties: dict[str, str | int], notes: list[str]
) -> CompiledStages:
    stages = {stage: parse_stage(stage, text, file) for stage, text in texts.items()}
    return CompiledStages(target, stages, properties, tuple(notes))


def _target(target: str) -> tuple[str, int | str, int, GpuSpec]:
    """``h100`` or ``sm_90`` -> ("cuda", 90, 32), and the GPU. An architecture stands for the first known GPU that has
    it, else for an H200.

    A wavefront has 64 lanes on gfx9, 32 after it.
    """
    device = GPU_SPECS.get(target)
    if device is not None:
        target = device.architecture
    else:
        device = next((spec for spec in GPU_SPECS.values() if spec.architecture == target), GPU_SPECS["h200"])
    if found := _NVIDIA.match(target):
        return "cuda", int(found[1]), 32, device
    if _AMD.match(target):
        return "hip", target, 64 if target.startswith("gfx9") else 32, device
    gpus = ", ".join(GPU_SPECS)
    raise DynadiagError(f"no target {target!r}: name a GPU ({gpus}) or an architecture (sm_80, sm_100, gfx942, ...)")


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


def _machine_code(
    cubin: bytes, folder: Path, texts: dict[str, str], properties: dict[str, str | int], notes: list[str]
) -> None:
    """Add the SASS with its line table, and the registers, stack and local memory that the kernel uses."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    tools = _tools()
    if "nvdisasm" not in tools:
        notes.append("no SASS: nvdisasm, the disassembler, is neither in Triton's wheel nor in CUDA's folder")
    else:
        texts["sass"] = _run(tools["nvdisasm"], "--print-line-info-inline", "--print-code", str(file))
    if "cuobjdump" in tools and (usage := _USAGE.search(_run(tools["cuobjdump"], "--dump-resource-usage", str(file)))):
        properties |= {"registers": int(usage[1]), "stack": int(usage[2]), "local": int(usage[4])}


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
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
