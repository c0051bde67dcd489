"""The steps of the GitHub Action, run as a runner does: each script in bash, with the inputs in its environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
PROGRAM = """\
import torch

@torch.compile(backend="eager")
def step(x):
    torch._dynamo.graph_break()
    return x * 2

step(torch.ones(3))
"""


def evaluated(text: str, inputs: dict[str, str]) -> str:
    """A value with its `${{ inputs.NAME }}` filled in."""
    filled = re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], text)
    assert "${{" not in filled
    return filled


def run(folder: Path, **given: str) -> tuple[subprocess.CompletedProcess[str], Path, dict[str, str]]:
    """The last step that ran, the step's summary, and the outputs. An input that the action has not is an error."""
    assert set(given) <= set(ACTION["inputs"])
    inputs = {name: str(about["default"]) for name, about in ACTION["inputs"].items()} | given
    summary = folder / "summary.md"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_ACTIONS": "true",
        "XDG_STATE_HOME": str(folder / "state"),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    done = None
    for step in ACTION["runs"]["steps"]:
        if step.get("if") == "inputs.install != ''" and not inputs["install"]:
            continue
        variables = {name: evaluated(text, inputs) for name, text in step["env"].items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True)
        if done.returncode:
            break
    assert done is not None
    return done, summary, {name: evaluated(about["value"], inputs) for name, about in ACTION["outputs"].items()}


def test_a_program_over_its_budget_fails_the_job_and_leaves_sarif_and_a_summary(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done, summary, outputs = run(tmp_path, targets="train.py", options="--max-breaks 0", install="")
    assert done.returncode == 1, done.stderr
    assert "::error title=dynadiag max-breaks,file=train.py,line=5" in done.stdout
    assert "1 graph break, 0 allowed" in summary.read_text()
    sarif = json.loads((tmp_path / outputs["sarif"]).read_text())
    assert "max-breaks" in {item["ruleId"] for item in sarif["runs"][0]["results"]}


def test_targets_on_lines_of_their_own_may_have_spaces(tmp_path: Path) -> None:
    (tmp_path / "my programs").mkdir()
    for name in ("my programs/train.py", "other.py"):
        (tmp_path / name).write_text(PROGRAM)
    given = {"targets": "my programs/train.py\nother.py\n", "options": "--max-breaks 1", "sarif": "the out.sarif"}
    done, _, outputs = run(tmp_path, **given, install="")
    assert done.returncode == 0, done.stderr
    assert "nothing new in 2 targets" in done.stdout
    assert (tmp_path / outputs["sarif"]).exists()


def test_text_of_an_input_is_never_a_command(tmp_path: Path) -> None:
    done, _, _ = run(tmp_path, targets="$(touch hacked) ; touch hacked", install="")
    assert done.returncode == 2
    assert not (tmp_path / "hacked").exists()


def test_a_failed_installation_fails_the_job(tmp_path: Path) -> None:
    done, _, _ = run(tmp_path, install="--no-index no-such-package-of-dynadiag")
    assert done.returncode == 1
    assert "no-such-package-of-dynadiag" in done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/check.md"])
def test_what_the_pages_give_the_action_are_its_inputs(page: str) -> None:
    for block in re.findall(r"uses: dynadiag/dynadiag@\S+\n((?: +.*\n)+)", (ROOT / page).read_text()):
        named = re.findall(r"^ +([\w-]+):", block.partition("- uses")[0].partition("with:")[2], re.MULTILINE)
        assert set(named) <= set(ACTION["inputs"])
