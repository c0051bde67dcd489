"""The whole way of somebody whose program fails, by keys in a real terminal: from the recording to the repro."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tui.test_terminal import terminal

_PROGRAM = """\
import torch
import torch._inductor.config as config

config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"


def model(x, y):
    total = x.sin() + y
    return torch.relu(total) * 2


torch.compile(model)(torch.randn(8), torch.randn(8))
"""
_LONG = 400.0  # seconds that a search may take on a busy machine


@pytest.mark.slow
def test_from_the_failure_to_the_culprits_line_and_the_repro(tmp_path: Path) -> None:
    program, recording, seen = tmp_path / "prog.py", tmp_path / "run.dynadiag", tmp_path / "seen.py"
    program.write_text(_PROGRAM)
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$2" {seen}\n')
    editor.chmod(0o755)
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "VISUAL": "", "EDITOR": str(editor)}
    explain = [sys.executable, "-m", "dynadiag", "explain", "-o", str(recording), program.name]
    ran = subprocess.run(explain, cwd=tmp_path, env=os.environ | state, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 1, ran.stderr
    with terminal(str(recording), **state) as shown:
        shown.read_until("Findings")
        shown.type("8")
        shown.read_until("bisects the program")
        shown.type("B")
        shown.read_until("run this?")
        shown.type("y")
        shown.read_until("running", _LONG)
        shown.read_until("culprit", _LONG)
        shown.type("\r")
        shown.read_until("torch.relu(total)")
        shown.type("8")
        shown.read_until("culprit")
        shown.type("M")
        shown.read_until("run this?")
        shown.type("y")
        shown.read_until("written and proved", _LONG)
        shown.type("\r")
        shown.read_until("\x1b[?1049h", _LONG)  # the editor has ended, the screen is the browser's again
        shown.type("q")
        assert shown.ended() == 0
    repro = seen.read_text()
    assert "relu" in repro
    assert "sin" not in repro
    assert [path.read_text() for path in (tmp_path / "state").rglob("repro-*.py")] == [repro]
