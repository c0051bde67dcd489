"""Each step of writing a file may fail: the command says so in one line, and what was there is as it was."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dynadiag.__main__ import main
from dynadiag.errors import DynadiagError
from dynadiag.recording import packing, store
from dynadiag.recording.journal import Journal
from tests.commands.build import journal, recording
from tests.commands.test_outputs import contents
from tui.bookmarks import write_bookmarks
from tui.colors import THEMES
from tui.settings_app import remember_theme

LINES = {
    "json": ["explain", "--json", "out", "in.dynadiag"],
    "recording": ["import", "--force", "-o", "out", "in.log"],
    "recording of several": ["import", "--force", "-o", "out", "logs"],
    "log": ["export", "--force", "-o", "out", "in.dynadiag"],
    "trace": ["export", "--force", "--perfetto", "out", "in.dynadiag"],
    "drawing": ["graph", "--force", "-o", "out", "in.dynadiag"],
    "page": ["report", "--force", "-o", "out", "in.dynadiag"],
    "packed": ["pack", "--force", "-o", "out", "job"],
    "sarif": ["check", "--force", "--sarif", "out", "in.dynadiag"],
    "html": ["check", "--force", "--html", "out", "in.dynadiag"],
    "values": ["values", "--json", "out", "in.dynadiag"],
    "baseline": ["check", "--update", "--baseline", "base.json", "in.dynadiag"],
    "state": ["explain", "in.log"],
}
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fails(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def refuse_large(path: Path, data: bytes) -> NoReturn:
    with path.open("xb") as file:
        file.write(data[: len(data) // 2])
    raise FULL


# What each fault replaces: the object, the name, and by what. A line that never comes there is written as usual.
FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "no file beside": (tempfile, "mkstemp", fails(PermissionError(errno.EACCES, "Permission denied"))),
    "half is written": (Path, "write_bytes", refuse_large),
    "flush": (os, "fsync", fails(FULL)),
    "rename": (store, "_publish", fails(OSError(errno.EIO, "Input/output error"))),
    "database": (store.RecordingWriter, "_finish", fails(sqlite3.OperationalError("database or disk is full"))),
    "events": (store.RecordingWriter, "events", fails(sqlite3.OperationalError("disk I/O error"))),
    "packing": (packing, "_compress_best", fails(FULL)),
    "state folder": (Path, "mkdir", fails(FULL)),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    recording(tmp_path / "in.dynadiag")
    journal(tmp_path / "in.log")
    for name in ("job", "logs"):
        (tmp_path / name).mkdir()
    for rank in (0, 1):
        shutil.copyfile(tmp_path / "in.dynadiag", tmp_path / "job" / f"h-rank{rank}.dynadiag")
        journal(tmp_path / "logs" / f"a_rank_{rank}.log")
    (tmp_path / "out").write_text('{"schema": 1, "dynadiag": "mine"}')
    (tmp_path / "base.json").write_text('{"version": 1, "known": [], "compile_seconds": {}}')
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("line", LINES)
def test_a_step_fails(
    line: str, fault: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(place)
    owner, name, by = FAULTS[fault]
    reached: list[str] = []

    def noted(*args: Any, **options: Any) -> Any:
        reached.append(name)
        return by(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, noted)
        code = main(LINES[line])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    if not reached:
        assert code in (0, 1), err
        return
    assert code == 2, (out, err)
    assert err.startswith("dynadiag: ")
    after = {path: text for path, text in contents(place).items() if not path.startswith(str(place / "state"))}
    assert after == before
    assert not [path for path in place.rglob("*") if path.suffix == ".part"]


def test_each_fault_is_reached(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault that no line comes to would test nothing."""
    for fault, (owner, name, _) in FAULTS.items():
        reached: list[str] = []
        original = getattr(owner, name)

        def noted(*args: Any, _to: list[str] = reached, _original: Any = original, **options: Any) -> Any:
            _to.append("")
            return _original(*args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, noted)
            for line in ("recording", "packed", "state", "trace"):
                main(LINES[line])
        assert reached, fault
    capsys.readouterr()


WRITERS: dict[str, Callable[[Path], None]] = {
    "theme": lambda path: remember_theme(path, THEMES[-1]),
    "bookmarks": lambda path: write_bookmarks(path, []),
}


@pytest.mark.parametrize("fault", ["flush", "rename"])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_the_browser_keeps_is_as_it_was(
    writer: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.json"
    path.write_text('{"theme": "mine"}')
    owner, name, by = FAULTS[fault]
    monkeypatch.setattr(owner, name, by)
    with pytest.raises(DynadiagError, match=r"kept\.json"):
        WRITERS[writer](path)
    assert path.read_text() == '{"theme": "mine"}'
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", ["create", "append", "reopen"])
@pytest.mark.parametrize("command", ["record", "explain"])
def test_the_journal_of_a_program(
    command: str, fault: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the program starts it is refused; from then on its exit code is its own."""
    (place / "prog.py").write_text("open('ran', 'w').write('1')\nraise SystemExit(7)\n")
    error = DynadiagError("cannot write x: No space left on device")
    by = {"append": lambda *_, **__: False}.get(fault, fails(error))
    monkeypatch.setattr(Journal, fault, by)
    code = main([command, "-o", "new.dynadiag", "prog.py"])
    assert "Traceback" not in capsys.readouterr().err
    assert (code, (place / "ran").exists()) == ((2, False) if fault == "create" else (7, True))
