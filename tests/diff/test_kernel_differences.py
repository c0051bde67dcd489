"""What generated code has more or less of, out of real kernels that Inductor generates."""

from __future__ import annotations

from pathlib import Path

import torch
from torch._inductor import config

import dynadiag
from dynadiag.diff.comparison import compare_recordings


def recorded(path: Path, simdlen: int | None) -> Path:
    torch.compiler.reset()
    with dynadiag.record(path), config.patch({"cpp.simdlen": simdlen, "fx_graph_cache": False}):
        torch.compile(lambda x: x.sin() + x.cos())(torch.ones(64, 64))
    return path


def test_loops_without_vectors_are_told(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "vectors.dynadiag", None), recorded(tmp_path / "scalars.dynadiag", 1)
    with dynadiag.open(paths[0]) as first, dynadiag.open(paths[1]) as second:
        (found,) = [each for each in compare_recordings(first, second).differences if each.stage == "kernel"]
    assert "has other code: 0 vector operations, had " in found.text
