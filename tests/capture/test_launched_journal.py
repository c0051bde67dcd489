"""The journal of a program that a command launched: its name is taken at once, and its end is never another's."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from dynadiag.recording.opening import is_journal, open_recording
from tests.capture.runs import DYNADIAG, LIMIT

WAITS = "import sys\nprint('started', flush=True)\nsys.stdin.readline()\nsys.exit(7)\n"


def record(*words: str, folder: Path, limit: int | None = None, **options: object) -> subprocess.Popen[str]:
    def hold() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    if limit is not None:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python would keep the first bytes of a module, and fail on them
    return subprocess.Popen(
        [*DYNADIAG, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hold,
    )


def test_two_records_of_one_name(tmp_path: Path) -> None:
    """The second is refused while the first runs, also with --force, and the first keeps its recording."""
    (tmp_path / "prog.py").write_text(WAITS)
    first = record("record", "-o", "same.dynadiag", "prog.py", folder=tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline() == "started\n"
    for force in ([], ["--force"]):
        second = record("record", "-o", "same.dynadiag", *force, "prog.py", folder=tmp_path)
        _, err = second.communicate("\n", timeout=LIMIT)
        assert second.returncode == 2, err
        assert err.startswith("dynadiag: same.dynadiag ")
    first.communicate("\n", timeout=LIMIT)
    assert first.returncode == 7
    with open_recording(tmp_path / "same.dynadiag") as opened:
        assert opened.run.exit_code == 7


def test_what_is_replaced_stays_until_the_end(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(f"print(open('old').read())\n{WAITS}")
    (tmp_path / "old").write_text("mine")
    running = record("record", "--force", "-o", "old", "prog.py", folder=tmp_path)
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(2)] == ["mine\n", "started\n"]
    assert (tmp_path / "old").read_text() == "mine"
    running.communicate("\n", timeout=LIMIT)
    assert running.returncode == 7
    with open_recording(tmp_path / "old") as opened:
        assert opened.run.exit_code == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "prog.py"]


def test_a_program_that_removes_or_replaces_its_recording(tmp_path: Path) -> None:
    """Its exit code is its own, and what it wrote there is kept."""
    (tmp_path / "gone.py").write_text("import os, sys\nos.unlink('r.dynadiag')\nsys.exit(7)\n")
    (tmp_path / "taken.py").write_text(
        "import os, sys\nos.unlink('r.dynadiag')\nopen('r.dynadiag', 'w').write('mine')\nsys.exit(7)\n"
    )
    (tmp_path / "over.py").write_text("import sys\nopen('r.dynadiag', 'w').write('mine')\nsys.exit(7)\n")
    for name in ("gone.py", "taken.py", "over.py"):
        (tmp_path / "r.dynadiag").unlink(missing_ok=True)
        done = record("record", "-o", "r.dynadiag", name, folder=tmp_path)
        _, err = done.communicate(timeout=LIMIT)
        assert done.returncode == 7, err
        assert "Traceback" not in err
        assert "dynadiag: " in err
        assert name == "gone.py" or (tmp_path / "r.dynadiag").read_text() == "mine"


def test_a_full_disk_at_the_end(tmp_path: Path) -> None:
    """The program's exit code is kept, and so is the journal, which can be read once there is room."""
    (tmp_path / "prog.py").write_text("import sys\nsys.exit(7)\n")
    for command in ("record", "explain"):
        full = record(command, "-o", f"{command}.dynadiag", "prog.py", folder=tmp_path, limit=20_000)
        out, err = full.communicate(timeout=LIMIT)
        assert full.returncode == 7, (out, err)
        path = tmp_path / f"{command}.dynadiag"
        assert f"is kept in {path.name}" in err
        assert f"dynadiag explain {path.name}" in err
        assert "Traceback" not in err
        assert is_journal(path)
        with open_recording(path) as opened:
            assert opened.run.exit_code == 7


def test_a_program_that_cannot_be_started_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prog.py").write_text("")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    assert main(["record", "-o", str(tmp_path / "r.dynadiag"), str(tmp_path / "prog.py")]) == 2
    assert "no-python: No such file" in capsys.readouterr().err
    assert not (tmp_path / "r.dynadiag").exists()
