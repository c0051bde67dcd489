"""Explain accounts for every break and recompile of twelve models: `benchmarks/models.py` checks each, and exits 1."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("forked_interpreters")

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
def test_the_explanation_is_what_the_trace_holds(name: str) -> None:
    ended, document = _study(name)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    assert document["graph_count"] > 0
    assert document["recompile_count"] > 0


def test_a_root_is_the_line_of_the_model_that_torch_blames() -> None:
    """The loss of GPT-2 is chosen by a function of transformers that logs: one break, met from many callers."""
    _, document = _study(QUICK)
    (root,) = [item for item in document["breaks"] if item["cause"] is None]
    line = Path(root["file"]).read_text().splitlines()[root["line"] - 1]
    assert re.search(r"logger\.\w+\(", line[root["column"] :])
    assert len(document["breaks"]) > 1
    assert {item["cause"] for item in document["breaks"][1:]} == {0}


@functools.cache
def _study(name: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """How the benchmark ended on one model, and the explanation; once in this process for each."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(PROGRAM), name, "--json", folder]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
        written = Path(folder, f"{name.replace(' ', '_')}.json")
        return ended, json.loads(written.read_text()) if written.exists() else {}
