"""A user's project may have modules of any name: every command works in its folder, and the script gets its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.build import journal, recording

NAMES = (
    "tui",
    "minifier",
    "recording",
    "capture",
    "commands",
    "explain",
    "render",
    "trial",
    "kernels",
    "api",
    "errors",
    "autoload",
    "torch_private",
    "journal",
    "store",
    "schema",
)
PROGRAM = """
import torch, tui, minifier, recording, capture
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
print(tui.MINE, minifier.MINE, recording.MINE, capture.MINE)
"""
WAYS = {
    "script": [str(Path(sys.executable).with_name("dynadiag"))],
    "module": [sys.executable, "-m", "dynadiag"],
}
COMMANDS = [
    ["--help"],
    ["explain", "--help"],
    ["explain", "in.dynadiag"],
    ["explain", "GB0025"],
    ["kernels", "in.dynadiag"],
    ["graph", "in.dynadiag"],
    ["import", "-o", "new.dynadiag", "in.log"],
    ["export", "-o", "new.log", "in.dynadiag"],
    ["doctor"],
    ["bisect", "--help"],
    ["minify", "--help"],
    ["compare", "--help"],
    ["browse", "--help"],
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder: half of the names are packages, half modules, and all are noticed when they are imported."""
    for number, name in enumerate(NAMES):
        file = tmp_path / name / "__init__.py" if number % 2 == 0 else tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("import sys; sys.stderr.write('users own ' + __name__ + '\\n'); MINE = 'mine'\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    recording(tmp_path / "in.dynadiag")
    journal(tmp_path / "in.log")
    return tmp_path


def run(way: str, words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    if way == "script" and not Path(WAYS[way][0]).exists():
        pytest.skip("the command is not installed beside this interpreter")
    variables = os.environ | {"XDG_STATE_HOME": str(folder / "state")} | environment
    return subprocess.run([*WAYS[way], *words], cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_uses_its_own(words: list[str], project: Path) -> None:
    done = run("module", words, project)
    assert done.returncode == 0, done.stderr
    assert "users own" not in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["browse", "--help"], ["minify", "--help"]], ids=" ".join)
def test_also_where_the_users_are_on_the_path(words: list[str], project: Path) -> None:
    done = run("script", words, project, PYTHONPATH=str(project))
    assert done.returncode == 0, done.stderr
    assert "users own tui" not in done.stderr
    assert "users own minifier" not in done.stderr


def test_the_browser_and_the_minifier_are_ours_wherever_the_path_leads(project: Path) -> None:
    check = "import sys, dynadiag.__main__ as m; m.main(['--version'])"
    code = f"try:\n    {check}\nexcept SystemExit: pass\nimport tui\nassert not hasattr(tui, 'MINE'), tui"
    variables = os.environ | {"PYTHONPATH": str(project)}
    subprocess.run([sys.executable, "-c", code], cwd=project, env=variables, check=True)


@pytest.mark.parametrize("way", WAYS)
def test_the_script_gets_its_own(way: str, project: Path) -> None:
    done = run(way, ["explain", "--json", "out.json", "-o", "out.dynadiag", "program.py"], project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mine mine mine mine\n")
    assert json.loads((project / "out.json").read_text())["graph_count"] == 1
    own = [line for line in done.stderr.splitlines() if line.startswith("users own")]
    assert own == [f"users own {name}" for name in ("tui", "minifier", "recording", "capture")]
