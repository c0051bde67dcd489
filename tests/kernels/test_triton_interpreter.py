"""Kernels of the Triton path without a GPU: run by the interpreter, and compiled for one. See the benchmark's text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "triton_interpreter.py"


def _study(name: str) -> dict[str, Any]:
    command = [sys.executable, str(PROGRAM), name, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout)[name]


@pytest.mark.slow
def test_one_kernel_of_the_sample_agrees_with_eager_and_becomes_machine_code() -> None:
    found = _study("fused_ops")
    (kernel,) = found["kernels"]
    assert found["launches"] == {kernel["name"]: 1}
    assert found["errors"]["result"] < 1e-6
    assert kernel["ptx"] > 10
    assert kernel["sass"] > 10
    assert kernel["registers"] > 0


@pytest.mark.slow
def test_every_kernel_of_a_transformer_block_forward_and_backward() -> None:
    found = _study("transformer_block")
    assert {kernel["graph"] for kernel in found["kernels"]} == {"forward", "backward"}
    assert len(found["kernels"]) >= 10
    assert {"result", "gradient of argument 0", "gradient of norm1.weight"} <= set(found["errors"])
    assert max(found["errors"].values()) < 1e-5
    assert all(kernel["ptx"] and kernel["sass"] for kernel in found["kernels"])
