"""A log that torch itself wrote, once for all workers, and its recording."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.recording.import_export import import_log
from tests.shared import shared_folder

PROGRAM = """
import torch

@torch.compile(backend="aot_eager")
def broken(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return (y * x.shape[0]).sum()

for size in (4, 5, 6):
    broken(torch.randn(size, requires_grad=True)).backward()
"""


def trace(program: str, folder: Path) -> Path:
    """Run `program` under TORCH_TRACE; the log that torch wrote."""
    environment = os.environ | {"TORCH_TRACE": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
    (log,) = folder.glob("*.log")
    return log


@pytest.fixture(scope="session")
def torch_log() -> Path:
    """A log of a small program with a break, recompiles and a backward pass."""
    with shared_folder("torch-log") as folder:
        return next(folder.glob("*.log"), None) or trace(PROGRAM, folder)


@pytest.fixture(scope="session")
def torch_recording(torch_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of `torch_log`."""
    output = tmp_path_factory.mktemp("recording") / "run.dynadiag"
    import_log(torch_log, output)
    return output
