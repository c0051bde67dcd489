"""What is known about a run at its beginning and at its end. Imports no torch: the command line writes headers too."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["run_footer", "run_header"]

_RELEVANT_PREFIXES = (
    "TORCH_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TRITON_",
    "INDUCTOR_",
    "AOT_",
    "PYTORCH_",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE",
)
_MAX_VALUE = 500  # characters of a variable that are recorded: a setting, or a list of paths


def run_header(target: str | None, launcher: int | None = None) -> dict[str, Any]:
    """Return the metadata of the current process at its start.

    ``launcher`` is the process id of the command that started the program.
    """
    torch = sys.modules.get("torch")
    return {
        "target": target or " ".join(sys.argv),
        "argv": list(sys.argv),
        "cwd": _working_directory(),
        "torch": getattr(torch, "__version__", None),
        "python": sys.version.split()[0],
        "rank": _rank(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "launcher": launcher,
        "started": time.time(),
        "environment": _relevant_variables(os.environ),
    }


def _working_directory() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # the folder does not exist any more
        return None


def _rank() -> int | None:
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isascii() and rank.isdigit() else None


def _relevant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what torch.compile does. Users forget that they have set them."""
    return {
        name: value[:_MAX_VALUE] for name, value in sorted(environment.items()) if name.startswith(_RELEVANT_PREFIXES)
    }


def run_footer(started: float) -> dict[str, Any]:
    """Return the metadata that is known when the interpreter ends."""
    return {
        "seconds": time.time() - started,
        "device": _device(),
        "uncaught": _uncaught_exception(),
        "peak_memory": _peak_memory(),
    }


def _device() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    return str(torch.cuda.get_device_name()) if torch.cuda.is_initialized() else "cpu"


def _peak_memory() -> int | None:
    """Bytes: of a GPU that was used what torch had allocated at most, else of this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # no Linux
        return None
    kilobytes = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return None if kilobytes is None else int(kilobytes) * 1024


def _uncaught_exception() -> str | None:
    """The type of the exception that ended the program, as the interpreter recorded it."""
    kind = getattr(sys, "last_type", None)
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else None
