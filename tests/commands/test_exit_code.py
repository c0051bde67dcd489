"""`explain` and `record` exit with the program's own exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dynadiag

pytestmark = pytest.mark.usefixtures("forked_interpreters")

ENDINGS = {
    "pass": 0,
    "raise SystemExit(3)": 3,
    "1 / 0": 1,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": 137,
}


def run(command: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        [sys.executable, "-m", "dynadiag", command, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("body", ENDINGS)
def test_the_programs_own_exit_code(tmp_path: Path, body: str) -> None:
    (tmp_path / "program.py").write_text(f"print('ran', flush=True)\n{body}\n")
    explained = run("explain", tmp_path, "-o", "a.dynadiag", "program.py")
    recorded = run("record", tmp_path, "-o", "b.dynadiag", "program.py")
    assert (explained.returncode, recorded.returncode) == (ENDINGS[body], ENDINGS[body])
    assert "Nothing was compiled." in explained.stdout
    if ENDINGS[body]:  # it ended before: why torch saw nothing needs no guess
        assert "why:" not in explained.stdout
    assert recorded.stdout == "ran\n"
    assert recorded.stderr.splitlines()[-1].endswith("b.dynadiag")
    with dynadiag.open(tmp_path / "b.dynadiag") as recording:
        assert recording.run.exit_code == (-9 if ENDINGS[body] == 137 else ENDINGS[body])
    assert run("explain", tmp_path, "a.dynadiag").returncode == 0  # of a recording, nothing is run


def test_stdout_is_json_alone_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('of the program')\n")
    done = run("explain", tmp_path, "--json", "-", "program.py")
    assert json.loads(done.stdout)["breaks"] == []
    assert "of the program" in done.stderr


def test_a_document_that_cannot_be_written_takes_nothing_else(tmp_path: Path) -> None:
    """The program wrote a file of that name. Its exit code, the report and the recording's path are there."""
    for code in (7, 0):
        (tmp_path / "out.json").unlink(missing_ok=True)
        (tmp_path / "program.py").write_text(f"import sys\nopen('out.json', 'w').write('mine')\nsys.exit({code})\n")
        done = run("explain", tmp_path, "--json", "out.json", "program.py")
        assert done.returncode == (code or 2)
        assert "Nothing was compiled." in done.stdout
        assert "out.json exists and is not a JSON document of dynadiag" in done.stderr
        assert Path(done.stderr.splitlines()[-1]).is_file()
        assert (tmp_path / "out.json").read_text() == "mine"


@pytest.mark.parametrize("stdout", ["a closed pipe", "a full disk"])
@pytest.mark.parametrize("document", [[], ["--json", "-"]], ids=["text", "json"])
def test_a_report_that_cannot_be_printed_takes_no_exit_code(document: list[str], stdout: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise SystemExit(7)\n")
    reader, writer = os.pipe() if stdout == "a closed pipe" else (None, os.open("/dev/full", os.O_WRONLY))
    if reader is not None:
        os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "dynadiag", "explain", *document, "program.py"],
        cwd=tmp_path, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        stdout=writer, stderr=subprocess.PIPE, text=True, timeout=240, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 7
    assert "Traceback" not in done.stderr
    assert ("No space left" in done.stderr) == (reader is None)
    assert Path(done.stderr.splitlines()[-1]).is_file()
