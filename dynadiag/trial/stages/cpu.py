"""C++ kernels: the machine code that this machine's compiler produces with Inductor's own flags."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.kernels.line_table import parse_stage
from dynadiag.torch_private import kernel_compilation as torch_private

_TIMEOUT = 300  # seconds; about 10 are typical without precompiled headers


def compile_kernel(source: str, folder: Path) -> dict[str, Any]:
    """The machine code of a kernel with its line table. Raises `DynadiagError` where a tool is missing."""
    disassembler = shutil.which("objdump")
    if disassembler is None:
        raise DynadiagError("there is no disassembler here (objdump): install binutils")
    file, output = folder / "kernel.cpp", folder / "kernel.o"
    file.write_text(source)
    command = torch_private.cpp_compile_command(str(file), str(output))
    try:
        _run(*command)
    except FileNotFoundError as error:
        raise DynadiagError(f"there is no C++ compiler here ({command[0]}): install g++ or set CXX") from error
    listing = _run(
        disassembler, "--disassemble", "--line-numbers", "--inlines", "--no-show-raw-insn", "-C", str(output)
    )
    text, lines = parse_stage("asm", listing, file.name)
    flags = [word for word in command[1:] if word.startswith(("-O", "-m", "-f"))]
    return {
        "stages": {"asm": {"text": text, "lines": lines}},
        "facts": {"compiler": _run(command[0], "--version").splitlines()[0], "flags": " ".join(flags)},
        "notes": ["compiled here, for this machine's processor, with the flags that Inductor uses"],
    }


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT).stdout
