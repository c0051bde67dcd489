"""The environment as torch describes it for an issue: the output of its own ``collect_env``."""

from __future__ import annotations

import platform
import re
import subprocess
import sys

from dynadiag.explanation.registry import installed_torch

__all__ = ["describe_environment", "short_environment"]

_TIMEOUT = 120.0  # seconds; it took 14 on a busy machine
_PUBLIC = re.compile(r"(PyTorch version|CUDA used|ROCM used|OS|GCC version|Python version|GPU models)")


def describe_environment(*, redact: bool) -> str:
    """The report of ``python -m torch.utils.collect_env``; redacted, its lines about torch, Python and the system.

    Raises `OSError` or `subprocess.SubprocessError` where it cannot be had.
    """
    command = [sys.executable, "-m", "torch.utils.collect_env"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="backslashreplace",
        timeout=_TIMEOUT,
        check=True,
    )
    lines = done.stdout.splitlines()
    kept = [line for line in lines if _PUBLIC.match(line)] if redact else lines[1:]  # "Collecting ..." is the first
    return "\n".join(kept)


def short_environment() -> str:
    """The versions that can be told without torch."""
    torch = installed_torch() or "not installed"
    return f"torch {torch}\nPython {platform.python_version()}, {platform.system()} {platform.machine()}"
