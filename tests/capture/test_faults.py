"""If anything in the recorder fails, the program runs as without it, and one line says what is not recorded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capture.runs import LIMIT

pytestmark = pytest.mark.usefixtures("forked_interpreters")
REPOSITORY = Path(__file__).parents[2]
FEWEST = 90  # functions that are made to raise: 112 on torch 2.13
RECORDED_ALL_THE_SAME = ("dictConfig", "logger class", "record factory", "journal closed")


def faulty(what: str, folder: Path) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DYNADIAG_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.capture.faulty", what, str(folder)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=REPOSITORY,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_each_function_of_the_recorder_may_raise(tmp_path: Path) -> None:
    found = faulty("each", tmp_path)
    assert found["wrong"] == []
    assert set(found["failed"]) >= set(found["probes"])
    assert len(found["failed"]) >= FEWEST
    assert found["held_back"] > 0


def test_no_trouble_with_the_recording_reaches_the_program(tmp_path: Path) -> None:
    for name, run in faulty("troubles", tmp_path).items():
        (code, out, err), (bare_code, bare_out, bare_err) = run["recorded"], run["bare"]
        assert (code, out) == (bare_code, bare_out), name
        said = [line for line in err.splitlines() if not re.match(r"W\d{4} ", line)]  # torch's own, with the time in it
        ours = [line for line in said if line.startswith("dynadiag: ")]
        assert len(said) - len(ours) == sum(not re.match(r"W\d{4} ", line) for line in bare_err.splitlines()), name
        assert run["bytes"] > 10_000 or name not in RECORDED_ALL_THE_SAME, name
        wanted = [] if run["told"] is None else [rf"dynadiag: process \d+ is not recorded {run['told']}: cannot .+"]
        assert len(ours) == len(wanted), (name, ours)
        assert all(re.fullmatch(*pair) for pair in zip(wanted, ours, strict=True)), (name, ours)


def test_the_variable_may_name_a_file(tmp_path: Path) -> None:
    """The same once as users meet it: the variable is there when torch is imported."""
    (tmp_path / "file").touch()
    program = "import torch\nprint(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)))\nraise SystemExit(5)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=os.environ | {"DYNADIAG_RECORD": str(tmp_path / "file")},
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "tensor([2., 2.])\n")
    assert re.fullmatch(r"dynadiag: process \d+ is not recorded at all: cannot make the folder .*\n", done.stderr)
