"""Explain accounts for every break and recompile of twelve models: `benchmarks/models.py` checks each, and exits 1."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the models come from the test extra")

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "models.py"
QUICK = "gpt2 with loss"  # has a break within an inlined callee, and recompiles
SLOW = (
    "bert",
    "llama with static cache",
    "t5",
    "vit",
    "mamba",
    "mixtral",
    "whisper",
    "clip",
    "deberta-v2",
    "bart generate",
    "training step",
)


@pytest.mark.parametrize("name", [QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_the_explanation_is_what_the_trace_holds(name: str, tmp_path: Path) -> None:
    ended = _study(name, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    document = json.loads((tmp_path / f"{name.replace(' ', '_')}.json").read_text())
    assert document["graph_count"] > 0
    assert document["recompile_count"] > 0


def test_a_root_is_the_line_of_the_model_that_torch_blames(tmp_path: Path) -> None:
    """The loss of GPT-2 is chosen by a function of transformers that logs: one break, met from many callers."""
    _study(QUICK, tmp_path)
    document = json.loads((tmp_path / "gpt2_with_loss.json").read_text())
    (root,) = [item for item in document["breaks"] if item["cause"] is None]
    line = Path(root["file"]).read_text().splitlines()[root["line"] - 1]
    assert re.search(r"logger\.\w+\(", line[root["column"] :])
    assert len(document["breaks"]) > 1
    assert {item["cause"] for item in document["breaks"][1:]} == {0}


def _study(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(PROGRAM), name, "--json", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)
