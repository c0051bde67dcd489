"""A process that uses a GPU cannot be forked: it ends as its own trial, and is started again with the answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.minify.test_command import NO_LOWERING, minify

# What a GPU's context means to us: it is in use from the first compiled call on. No product: that would ask the GPU.
_IN_USE = NO_LOWERING.replace("x @ w", "x * w").replace(
    "\nmodel(", "\ntorch.cuda.is_initialized = lambda: True\nmodel("
)


@pytest.mark.slow
def test_the_repro_is_the_same_as_by_forks(tmp_path: Path) -> None:
    code, repro, data, told = minify(tmp_path, _IN_USE)
    assert code == 0, told
    assert (data["rung"], data["proved"], data["minimal"]) == ("inductor", True, True)
    assert (data["nodes_after"], data["elements_after"]) == (1, 1)
    done = subprocess.run([sys.executable, str(repro)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "no lowering of mine" in done.stderr
