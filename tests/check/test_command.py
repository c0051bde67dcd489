"""`dynadiag check` from its arguments to its exit code, on recordings and on a program."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dynadiag.__main__ import main
from dynadiag.commands.check import _relative_name
from tests.commands.build import journal, recording
from tests.interpreters import DYNADIAG

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = """\
import sys

import torch

def helper(value):
    print("value", value.shape)
    return value * 2

@torch.compile(backend="eager")
def step(x, scale):
    return helper(x * scale).relu()

for n in (1, 2):
    step(torch.ones(4), n)
sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
"""
RENAMED = PROGRAM.replace("value", "v2").replace("scale", "factor").replace('"v2"', '"value"')


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)


def checked(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main(["check", "--json", "out.json", *words])
    capfd.readouterr()
    return code, json.loads(Path("out.json").read_text()) if code in (0, 1) else None


def test_recordings_and_logs_are_held_to_a_baseline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recording(tmp_path / "one.dynadiag")
    journal(tmp_path / "two.log")
    code, document = checked(capfd, "one.dynadiag", "two.log")
    assert code == 1
    assert {item["rule"] for item in document["problems"]} == {"new-break", "new-recompile"}
    assert not Path("dynadiag-baseline.json").exists()
    assert checked(capfd, "--update", "one.dynadiag", "two.log")[0] == 0
    before = Path("dynadiag-baseline.json").read_bytes()
    code, document = checked(capfd, "one.dynadiag", "two.log")
    assert (code, document["problems"], len(document["targets"])) == (0, [], 2)
    assert checked(capfd, "--update", "one.dynadiag", "two.log")[0] == 0
    assert Path("dynadiag-baseline.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a program"),
        (["missing.dynadiag"], "missing.dynadiag"),
        (["missing.py"], "missing.py"),
        (["--baseline", "missing.json", "one.dynadiag"], "--update"),
        (["--max-breaks", "-1", "one.dynadiag"], "0 or more"),
        (["--max-memory", "much", "one.dynadiag"], "much"),
        (["--max-compile-seconds", "long", "one.dynadiag"], "long"),
        (["--sarif", "none/out.sarif", "one.dynadiag"], "none"),
        (["--baseline", "bad.json", "one.dynadiag"], "bad.json"),
        (["--update", "--baseline", "bad.json", "one.dynadiag"], "bad.json"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    words: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recording(tmp_path / "one.dynadiag")
    Path("bad.json").write_text("mine")
    assert main(["check", *words]) == 2
    out, err = capfd.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert said in err
    assert Path("bad.json").read_text() == "mine"


def test_all_three_outputs_of_ci(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording(tmp_path / "one.dynadiag")
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(["check", "--github", "--sarif", "out.sarif", "one.dynadiag"]) == 1
    out = capfd.readouterr().out
    assert "::warning title=dynadiag new-break,file=" in out
    assert summary.read_text().startswith("before\n## dynadiag check fails: ")
    assert json.loads(Path("out.sarif").read_text())["version"] == "2.1.0"


def test_a_warm_up_that_never_ended_is_a_problem(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recording(tmp_path / "one.dynadiag")
    assert checked(capfd, "--update", "one.dynadiag")[0] == 0
    code, document = checked(capfd, "--after", "100", "one.dynadiag")
    assert (code, [item["rule"] for item in document["problems"]]) == (1, ["compiled-after-warm-up"])
    assert "no warm-up of 100 calls is recorded" in json.dumps(document["problems"])


def test_a_program_is_run_and_known_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Moved lines and renamed variables are not new findings; a planted break is the only new one."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    assert checked(capfd, "--update", "train.py")[0] == 0
    program.write_text("\n" * 30 + RENAMED)
    code, document = checked(capfd, "train.py")
    assert (code, document["problems"], document["gone"]) == (0, [], [])
    assert document["targets"][0]["memory"] > 10**7
    program.write_text(PROGRAM.replace("    return value", "    torch._dynamo.graph_break()\n    return value"))
    code, document = checked(capfd, "train.py")
    (problem,) = document["problems"]
    assert (code, problem["rule"], problem["line"], problem["targets"]) == (1, "new-break", 7, ["train.py"])


def test_a_recording_that_reached_its_size_limit_is_not_ok(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.compile(torch.sin, backend='eager')(torch.ones(3))\n")
    code, document = checked(capfd, "--limit", "0.000001", "train.py")
    (problem,) = document["problems"]
    assert (code, problem["rule"]) == (1, "failed")
    assert "size limit" in problem["text"]


def test_a_program_gets_its_arguments_and_its_failure_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "dynadiag.toml").write_text(
        'max-breaks = 9\nmax-recompiles = 9\n[targets."train.py"]\narguments = ["3"]\n'
    )
    done = subprocess.run([DYNADIAG, "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "failed train.py: the program failed: exit code 3" in done.stdout
    assert done.stdout.startswith("value torch.Size([4])\n")
    assert done.stderr.endswith(".dynadiag\n")


@pytest.mark.parametrize("rest", ["", ":case", "::test_net", "::TestNet::test_size[a:b.py:1]"])
def test_a_target_has_the_name_that_pytest_gives_a_test(rest: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_net.py").touch()
    assert _relative_name(f"{tmp_path}/tests/test_net.py{rest}", tmp_path) == f"tests/test_net.py{rest}"
