"""`dynadiag check --on ray`: programs as tasks of Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dynadiag.__main__ import main

BREAKS = """
import torch

@torch.compile(backend="eager")
def f(x):
    torch._dynamo.graph_break()
    return x + 1

print("the result", f(torch.ones(3)).sum().item())
"""
# Ends the worker of Ray that runs it, the first time.
KILLS_ITS_WORKER = """
import os, pathlib, signal
marker = pathlib.Path("killed")
if not marker.exists():
    marker.touch()
    record = os.getppid()
    worker = int(pathlib.Path(f"/proc/{record}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
"""


def checked(*words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "dynadiag", "check", "--json", "-", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_without_ray_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    Path("breaks.py").write_text(BREAKS)
    assert main(["check", "--on", "ray", "breaks.py"]) == 2
    assert "pip install 'dynadiag[ray]'" in capfd.readouterr().err


@pytest.mark.slow
def test_the_problems_are_those_of_one_machine() -> None:
    """Also where the worker of a program is killed: Ray runs it again."""
    pytest.importorskip("ray")
    Path("breaks.py").write_text(BREAKS)
    Path("killed.py").write_text(KILLS_ITS_WORKER + BREAKS)
    Path("raises.py").write_text(BREAKS + "raise SystemExit(3)\n")
    code, swept = checked("--on", "ray", "breaks.py", "killed.py", "raises.py")
    assert Path("killed").exists()
    local_code, local = checked("breaks.py", "killed.py", "raises.py")
    assert (code, swept["problems"]) == (local_code, local["problems"])
    assert [each["target"] for each in swept["targets"]] == ["breaks.py", "killed.py", "raises.py"]
    assert [each["rule"] for each in swept["problems"]] == ["failed", "new-break"]


FAILS_AT_A_LOWERING = """
import torch
import torch._inductor.config

torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"

@torch.compile
def f(x):
    return x.sin().relu().cos()

f(torch.ones(8))
"""


@pytest.mark.slow
def test_a_search_over_ray_finds_what_one_machine_finds() -> None:
    pytest.importorskip("ray")
    Path("fails.py").write_text(FAILS_AT_A_LOWERING)
    found = []
    for words in ([], ["--on", "ray"]):
        command = [sys.executable, "-m", "dynadiag", "bisect", "--fresh", "--json", "-", *words, "fails.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        found.append([document[name] for name in ("verdict", "rung", "culprits")])
    assert found[0] == found[1]
