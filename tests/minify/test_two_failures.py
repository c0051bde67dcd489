"""A program with two failures: the first is reduced and kept to the end, and the other is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_FAULTS = {  # what fails under `fullgraph`, and a word of the message
    "break": ("torch._dynamo.graph_break()", "Call to `torch._dynamo.graph_break()`"),
    "item": ("if x.sum().item() > 0:\n            x = x + 1", "Data-dependent"),
    "heap": ("heapq.heapify(values)", "Attempted to call function marked as skipped"),
    "sort": ("values.sort(key=lambda n: Key(n))", "sort with non-constant keys"),
    "decimal": ("x = x + float(decimal.Decimal('1.5'))", "Unsupported function call"),
    "fake": ("x = torch.as_tensor([x.mean(), x.max()])", "fake tensor call"),
}
_PROGRAM = """
import decimal
import heapq
import torch

class Key:
    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        return self.n < other.n

class Stage:
    def __init__(self, scale):
        self.scale = scale

    def first(self, x):
        values = [3, 1, 2]
        {first}
        return x * self.scale + values[0]

    def second(self, x):
        values = [5, 4]
        {second}
        return x - values[0]

def main():
    stage = Stage(2)
    x = torch.ones(3)
    for step in (stage.first, stage.second):
        x = torch.compile(step, backend="eager", fullgraph=True)(x)
    print(x.sum())

main()
"""
_PAIRS = [
    ("break", "item"), ("item", "heap"), ("heap", "sort"), ("sort", "decimal"), ("decimal", "fake"),
    ("fake", "break"), ("break", "heap"), ("heap", "decimal"), ("item", "fake"), ("sort", "break"),
]  # fmt: skip


@pytest.mark.usefixtures("forked_interpreters")
@pytest.mark.parametrize(("first", "second"), _PAIRS)
def test_the_first_failure_is_kept_and_the_other_is_told(tmp_path: Path, first: str, second: str) -> None:
    target, repro, document = tmp_path / "train.py", tmp_path / "repro.py", tmp_path / "out.json"
    target.write_text(_PROGRAM.format(first=_FAULTS[first][0], second=_FAULTS[second][0]))
    words = ["-o", str(repro), "--recording", str(tmp_path / "m.dynadiag"), "--json", str(document)]
    command = [sys.executable, "-m", "dynadiag", "minify", *words, str(target)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    data = json.loads(document.read_text())
    assert data["proved"]
    assert _FAULTS[first][1] in data["failure"]["message"]
    assert any(_FAULTS[second][1] in other for other in data["side_finds"])
    shown = subprocess.run([sys.executable, str(repro)], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert _FAULTS[first][1] in shown.stderr
