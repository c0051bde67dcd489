"""A program that is killed at any moment: the recording holds what came before, and says that it is cut short."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from dynadiag.recording.opening import is_journal, open_recording
from dynadiag.recording.reader import Recording
from tests.capture.runs import DYNADIAG, LIMIT

PROGRAM = """
import torch

def step(x, k):
    y = torch.relu(x) * k
    torch._dynamo.graph_break()
    return (y + k).sum()

print("ready", flush=True)
for k in range(200):
    torch.compiler.reset()
    torch.compile(step, backend="aot_eager")(torch.ones(3, requires_grad=True), k).backward()
"""


def killed_at(command: list[str], folder: Path, size: int, **environment: str) -> Path:
    """Run a command in a session of its own, and kill all of it when its journal has ``size`` bytes."""
    process = subprocess.Popen(command, env=os.environ | environment, start_new_session=True, cwd=folder)
    deadline = time.monotonic() + LIMIT
    try:
        while not (found := [path for path in folder.glob("*.dynadiag") if path.stat().st_size >= size]):
            assert process.poll() is None, "the program ended before its journal was that long"
            assert time.monotonic() < deadline
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    wait_for_group(process.pid)
    return found[0]


def wait_for_group(group: int) -> None:
    """Until no process of a killed group is left."""
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return


def assert_all_is_there(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = path.read_bytes()
    assert is_journal(path)
    with open_recording(path) as recording:
        assert b"".join(recording.raw()) == written
        assert (recording.run.exit_code, recording.run.complete) == (None, False)
        whole = sum(line.startswith(b"V") for line in written.split(b"\n"))
        kinds = recording.counts()
        assert sum(kinds.values()) - kinds.get("dynadiag_unparsed", 0) in (whole, whole - 1)  # the last, cut in two
    with Recording(path):  # folded by whoever opened it first
        pass
    assert main(["explain", "--json", str(path.with_suffix(".json")), str(path)]) == 0
    assert "cut short" in capsys.readouterr().out
    document = json.loads(path.with_suffix(".json").read_text())
    assert document["exit_code"] is None


def program(folder: Path) -> str:
    file = folder / "program.py"
    file.write_text(PROGRAM)
    return str(file)


@pytest.mark.parametrize("size", [1, 300_000])
@pytest.mark.usefixtures("forked_interpreters")
def test_a_process_that_recorded_itself(size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = killed_at([sys.executable, program(tmp_path)], tmp_path, size, DYNADIAG_RECORD=str(tmp_path))
    assert_all_is_there(path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(20))
def test_at_any_moment_of_a_compile(moment: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = random.Random(moment).randrange(1, 2_000_000)
    path = killed_at([sys.executable, program(tmp_path)], tmp_path, size, DYNADIAG_RECORD=str(tmp_path))
    assert_all_is_there(path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 200_000, 1_000_000])
def test_together_with_dynadiag(size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*DYNADIAG, "explain", "-o", str(tmp_path / "run.dynadiag"), program(tmp_path)]
    assert_all_is_there(killed_at(command, tmp_path, size), capsys)
