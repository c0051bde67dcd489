"""`explain --coverage`: operator calls counted in a run of their own, which disturbs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dynadiag.__main__ import main
from dynadiag.commands.explain import Counts, merge_counts

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = """
import os
import torch

print("ran", flush=True)

def loop(x):
    for _ in range(3):
        x = torch.relu(x)
        torch._dynamo.graph_break()
    return whole(x)

def whole(x):
    return (x * 2).sin()

torch.compile(loop, backend="eager")(torch.ones(3))
{end}
"""


def explain(folder: Path, *arguments: str, end: str = "") -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    (folder / "program.py").write_text(PROGRAM.format(end=end))
    ended = subprocess.run(
        [sys.executable, "-m", "dynadiag", "explain", "-o", "a.dynadiag", "--json", "a.json", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return ended, json.loads((folder / "a.json").read_text()) if (folder / "a.json").exists() else {}


def test_a_function_that_ran_uncompiled_leads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended, document = explain(tmp_path, "--coverage", "program.py")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("ran\n") == 1  # what the second run prints is nobody's
    assert "runs the program a second time" in ended.stderr
    file = str(tmp_path / "program.py")
    assert document["coverage"] == {
        "compiled": 2,
        "uncompiled": 3,
        "outside": 2,  # `empty` and `fill_` of `torch.ones`
        "by_function": [
            {"function": "loop", "file": file, "line": 7, "compiled": 0, "uncompiled": 3},
            {"function": "whole", "file": file, "line": 13, "compiled": 2, "uncompiled": 0},
        ],
        "note": None,
    }
    first, second, *_ = document["findings"]
    assert (first["rule"], first["caused_by"], first["cost"]["operators_uncompiled"]) == ("uncompiled", 1, 3)
    assert (second["rule"], second["line"], second["cost"]["operators_uncompiled"]) == ("break", 10, 3)
    assert "uncompiled: all 3 operator calls in loop ran uncompiled" in ended.stdout
    assert "because of: break GB0025 at line 10" in ended.stdout
    assert "2 of 5 operator calls in compiled calls ran in graphs, 40%" in ended.stdout
    assert main(["explain", "--coverage", str(tmp_path / "a.dynadiag")]) == 2
    assert "leave --coverage out" in capsys.readouterr().err


def test_a_program_that_leaves_no_counts(tmp_path: Path) -> None:
    ended, document = explain(tmp_path, "--coverage", "program.py", end="os._exit(3)")
    assert ended.returncode == 3
    assert (document["coverage"]["compiled"], document["coverage"]["by_function"]) == (0, [])
    assert "ended with exit code 3 before Python's own end" in document["coverage"]["note"]
    assert "nothing was counted" in ended.stdout


def test_the_counts_of_several_processes_are_added() -> None:
    one = Counts(functions=[("a.py", 1, "f", 2, 0), ("a.py", 9, "g", 0, 1)], outside=1)
    two = Counts(functions=[("a.py", 9, "g", 0, 4)], outside=2)
    both = merge_counts([one, two])
    assert (both.compiled, both.uncompiled, both.outside) == (2, 5, 3)
    assert [(row.function, row.compiled, row.uncompiled) for row in both.by_function] == [("g", 0, 5), ("f", 2, 0)]
