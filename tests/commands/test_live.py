"""`--live`: a line on stderr as each compile of the program begins, breaks, recompiles, ends or gives up."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = """\
import torch

@torch.compile(backend="eager", dynamic=False)
def step(x):
    return x * 2

torch._dynamo.config.recompile_limit = 2
for size in (2, 3, 4):
    step(torch.ones(size))
print("done")
"""


def test_a_program_is_watched_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "dynadiag", "record", "--live", "-o", "run.dynadiag", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    lines = [line[9:] for line in done.stderr.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert lines[0] == "compiling   0/0   step at train.py:3"
    assert lines[1].startswith("compiled    0/0   step at train.py:3 in ")
    assert lines[2] == "recompiling 0/1   step at train.py:3: x.size()[0] was 2, now 3"
    assert lines[4].startswith("recompiling 0/2   step at train.py:3: ")
    assert lines[5].startswith("gave up     0/2   step at train.py:3: ")
    assert "limit" in lines[5]
