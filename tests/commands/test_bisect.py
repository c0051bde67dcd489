"""The commands that a report of bisect gives to repeat its steps by hand."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.bisection.verdict import Verdict
from tests.bisection.test_bisector import BACKEND

pytestmark = pytest.mark.usefixtures("forked_interpreters")


def dynadiag(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "dynadiag", *words], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("a folder") / "program.py"
    path.write_text(BACKEND)
    return path


def test_a_candidate_says_how_it_ends(program: Path) -> None:
    passes = dynadiag("bisect", "--candidate", '{"rung": "uncompiled"}', str(program))
    assert (passes.returncode, passes.stderr.partition(",")[0]) == (3, "passes")
    fails = dynadiag("bisect", "--candidate", '{"rung": "custom"}', str(program))
    assert (fails.returncode, fails.stderr.partition(",")[0]) == (0, "fails: AssertionError")


@pytest.mark.parametrize("candidate", ["", "[]", "{", '{"rung": 7}', '{"switches": [{}]}', '{"unknown": 1}'])
def test_what_is_no_candidate(candidate: str, program: Path) -> None:
    done = dynadiag("bisect", "--candidate", candidate, str(program))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--candidate" in done.stderr


@pytest.mark.parametrize(
    ("target", "command", "accuracy", "expected"),
    [
        ("/a b/t.py", "'/a b/t.py' -x", False, "TORCHDYNAMO_DISABLE=1 python '/a b/t.py' -x"),
        ("-m pkg.mod", "-m pkg.mod", False, "TORCHDYNAMO_DISABLE=1 python -m pkg.mod"),
        ("/t.py:make", "/t.py:make", False, """dynadiag bisect --candidate '{"rung": "uncompiled"}' /t.py:make"""),
        ("/t.py", "/t.py", True, """bisect --candidate '{"accuracy": true, "rung": "uncompiled"}' /t.py"""),
    ],
)
def test_how_a_rung_is_repeated(target: str, command: str, accuracy: bool, expected: str) -> None:
    rungs = {"uncompiled": "pass", "inductor": "same"}
    verdict = Verdict("found", rungs, "inductor", target=target, command=command, accuracy=accuracy)
    text = str(verdict).replace('"caches": false, ', "").replace(', "caches": false', "")
    assert expected in text
    assert f"minify -o repro.py{' --accuracy' * accuracy} {command}" in text
    assert json.loads(verdict.to_json())["target"] == target
    assert all(shlex.split(line) for line in text.partition("by hand:")[2].splitlines() if line.startswith("  "))
