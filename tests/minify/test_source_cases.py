"""Programs of each class of failure in Dynamo become a few lines."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from minifier.source import count_lines, count_tokens

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Case:
    """A program, and the most lines and tokens that its repro may have. ``has`` is in the repro, ``gone`` is not."""

    program: str
    lines: int
    tokens: int
    has: str
    gone: str = ""
    target: str = "train.py"


_LEAK = """
import contextlib
import torch

class Ledger:
    def __init__(self):
        self.opened, self.closed = [], []

def read(name, ledger):
    ledger.opened.append(name)
    try:
        yield from range(5)
    finally:
        ledger.closed.append(name)

class Reader:
    def __init__(self, ledger):
        self.ledger = ledger

    def __call__(self, x, names):
        for name in names:
            for row in read(name, self.ledger):
                if row > 2:
                    break
                x = x + row
        return x

@contextlib.contextmanager
def audit(ledger, note):
    yield ledger
    assert len(ledger.closed) == len(ledger.opened), (note, "leaked", ledger.opened)

ledger = Ledger()
with audit(ledger, "first pass"):
    torch.compile(Reader(ledger), backend="eager")(torch.ones(2), ["north", "south"])
"""
_RECURSION = """
import enum
import torch

class Axis(enum.IntEnum):
    BATCH = 0
    TIME = 1

class Pool:
    def __init__(self, axis):
        self.axis = axis

    def __call__(self, x):
        return x.sum(dim=int(self.axis)) / [2, 3][self.axis]

def test_pool():
    pool = torch.compile(Pool(Axis.TIME), backend="eager")
    assert pool(torch.ones(2, 3)).shape == (2,)
"""
_EXPORT = """
import torch
from torch.export import Dim

class Scale(torch.nn.Module):
    def forward(self, x):
        return x * 2

class Windows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        height, width = x.shape
        rows = self.scale(x).view(height // 4, 4, width)
        return rows.permute(1, 0, 2).flatten(1)

height = Dim("height", min=8, max=256)
program = torch.export.export(Windows(), (torch.randn(16, 3),), dynamic_shapes={"x": {0: height}})
print(program.module()(torch.randn(32, 3)).shape)
"""
_CASES = {
    "a generator that is not closed": Case(_LEAK, 13, 60, "finally"),
    "an export of a size that is no multiple": Case(_EXPORT, 9, 95, "# called without torch.export it passes", "Scale"),
    "a test, and a recursion without end": Case(_RECURSION, 8, 60, "IntEnum", "Pool", "train.py::test_pool"),
}


@pytest.mark.usefixtures("forked_interpreters")
@pytest.mark.parametrize(
    "what",
    [
        "a generator that is not closed",
        "an export of a size that is no multiple",
        pytest.param(
            "a test, and a recursion without end",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="Dynamo traces this IntEnum there"),
        ),
    ],
)
def test_a_failing_program_becomes_a_few_lines(tmp_path: Path, what: str) -> None:
    case = _CASES[what]
    repro, document = tmp_path / "out" / "repro.py", tmp_path / "out.json"
    repro.parent.mkdir()
    (tmp_path / "train.py").write_text(case.program)
    words = ["-o", str(repro), "--recording", str(tmp_path / "m.dynadiag"), "--json", str(document)]
    command = [sys.executable, "-m", "dynadiag", "minify", *words, case.target]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    text = repro.read_text()
    assert json.loads(document.read_text())["proved"]
    assert (count_lines(text) <= case.lines, count_tokens(text) <= case.tokens) == (True, True), text
    assert case.has in text
    assert not case.gone or case.gone not in text
