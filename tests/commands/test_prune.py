"""The state folder: a log has one recording in it, and what is too much is told and can be removed."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from dynadiag.commands import state
from dynadiag.recording.journal import Journal, process_space
from tests.commands.build import journal


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state" / "dynadiag").mkdir(parents=True)
    return tmp_path / "state" / "dynadiag"


def result(folder: Path, name: str, megabytes: int, age: int) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(megabytes * 1_000_000)  # it takes no room on disk
    for each in (path, path.parent) if path.parent != folder else (path,):
        os.utime(each, (1e9 - age, 1e9 - age))
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_log_has_one_recording(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = journal(tmp_path / "a.log")
    for command in (["explain"], ["explain"], ["report", "-o", "page.html"], ["check"], ["caches"], ["import"]):
        assert main([*command, str(log)]) in (0, 1), capsys.readouterr().err
    assert len(names(folder)) == 1
    (tmp_path / "b.log").write_bytes(log.read_bytes())
    log.write_bytes(log.read_bytes() * 2)
    assert main(["explain", "a.log"]) == 0
    assert len(names(folder)) == 2
    for path in folder.iterdir():
        path.write_bytes(b"damaged")
    assert main(["explain", "a.log"]) == 0
    assert sum(path.read_bytes() == b"damaged" for path in folder.iterdir()) == 1


def test_a_folder_of_logs(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for rank in (0, 1):
        journal(tmp_path / "logs" / f"trace_rank_{rank}.log", text=f"f{rank}")
    for _ in range(2):
        assert main(["explain", "logs"]) == 0
        assert len(names(folder)) == 2


@pytest.mark.parametrize("value", ["relative", ".", ""])
def test_a_relative_state_home_does_not_count(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = names(tmp_path)
    (tmp_path / "prog.py").write_text("")
    assert main(["record", "prog.py"]) == 0
    assert names(tmp_path) - before == {"prog.py", "home"}
    assert capsys.readouterr().err.startswith(str(tmp_path / "home" / ".local" / "state" / "dynadiag"))


def test_the_oldest_beyond_the_size_may_go(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        result(folder, f"r{number}.dynadiag", 400, age=number)
    result(folder, "mine.txt", 5000, age=10)
    assert main(["prune"]) == 0
    out = capsys.readouterr().out
    assert "2 results, 0.80 GB may go; `dynadiag prune --yes` removes them" in out
    assert [name for name in ("r0", "r1", "r2", "r3") if f"{name}.dynadiag" in out] == ["r2", "r3"]
    assert len(names(folder)) == 5
    assert main(["prune", "--yes", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["removed"], document["freed"], document["bytes"]) == (True, 800_000_000, 1_600_000_000)
    assert names(folder) == {"r0.dynadiag", "r1.dynadiag", "mine.txt"}
    assert main(["prune", "--yes"]) == 0
    assert "nothing has to go" in capsys.readouterr().out


def test_options_and_folders(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(folder, "triage-a-1/run.dynadiag", 1, age=3)
    result(folder, "repro-a-1.py", 0, age=2)
    result(folder, "a.html", 1, age=1)
    (folder / "link.dynadiag").symlink_to(tmp_path / "elsewhere.dynadiag")
    assert main(["prune", "--keep", "0", "--older-than", "1000000", "--yes"]) == 0
    assert len(names(folder)) == 4
    assert main(["prune", "--keep", "0", "--yes"]) == 0
    assert names(folder) == {"link.dynadiag"}
    for wrong in ("-1", "nan", "x"):
        assert main(["prune", "--keep", wrong]) == 2
    assert main(["prune", "--json", "none/x"]) == 2
    capsys.readouterr()


def test_what_is_being_written_stays(folder: Path) -> None:
    made = Journal.create(folder / "running.dynadiag")
    made.append({"dynadiag_run": {"pid": os.getpid(), "host": socket.gethostname(), "space": process_space()}})
    made.close()
    assert main(["prune", "--keep", "0", "--yes"]) == 0
    assert names(folder) == {"running.dynadiag"}


def test_a_missing_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.rmdir()
    assert main(["prune", "--yes"]) == 0
    assert "0 results" in capsys.readouterr().out


def test_it_is_told_once_the_folder_is_large(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(journal(tmp_path / "a.log"))
    assert main(["import", log]) == 0
    assert "prune" not in capsys.readouterr().err
    monkeypatch.setattr(state, "STATE_BYTES", 1000)
    assert main(["import", log]) == 0
    assert "`dynadiag prune` says what may go" in capsys.readouterr().err.splitlines()[0]
    assert state.state_folder() == folder
