"""A journal is folded in place only once nobody can be writing it; else it is read through a snapshot."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from dynadiag.errors import UnwritableOutput
from dynadiag.recording import opening
from dynadiag.recording.journal import Journal, process_space
from dynadiag.recording.opening import has_ended, is_being_written, is_journal, journal_header, open_recording

HERE: dict[str, Any] = {"host": socket.gethostname(), "space": process_space()}
GONE = 2**22 + 1  # above the largest process id of Linux
END: dict[str, Any] = {"dynadiag_end": {"seconds": 1.0}}
EXIT: dict[str, Any] = {"dynadiag_exit": {"code": 3}}


def journal(path: Path, *events: dict[str, Any], launch: dict[str, Any] | None = None, **run: Any) -> Path:
    made = Journal.create(path)
    if launch is not None:
        made.append({"dynadiag_launch": launch})
    made.append({"dynadiag_run": {"target": "a.py", **run}})
    for event in events:
        made.append(event, "a payload")
    made.close()
    return path


@pytest.mark.parametrize(
    ("events", "launch", "run", "folded"),
    [
        ((), None, {**HERE, "pid": GONE}, True),
        ((), None, {**HERE, "pid": os.getpid()}, False),
        ((), None, {**HERE, "pid": GONE, "host": "another"}, False),
        ((), None, {**HERE, "pid": GONE, "space": "another boot pid:[1]"}, False),
        ((), None, {"host": HERE["host"], "pid": GONE}, False),
        ((), None, {}, False),
        ((END,), None, {**HERE, "pid": GONE, "host": "another"}, True),
        ((END,), None, {**HERE, "pid": os.getpid()}, False),
        # a program that was launched has its end once its launcher has appended the exit code
        ((END,), {**HERE, "host": "another", "pid": 1}, {**HERE, "host": "another", "pid": GONE}, False),
        ((END, EXIT), {**HERE, "host": "another", "pid": 1}, {**HERE, "host": "another", "pid": GONE}, True),
        ((END,), {**HERE, "pid": GONE}, {**HERE, "pid": GONE}, True),
        ((END,), {**HERE, "pid": os.getpid()}, {**HERE, "pid": GONE}, False),
        ((), {**HERE, "pid": GONE}, {**HERE, "pid": os.getpid()}, False),
    ],
)
def test_who_folds(
    events: tuple[dict[str, Any], ...], launch: dict[str, Any] | None, run: dict[str, Any], folded: bool, tmp_path: Path
) -> None:
    path = journal(tmp_path / "a.dynadiag", *events, launch=launch, **run)
    before = path.read_bytes()
    assert has_ended(path) is folded
    for _ in range(2):
        with open_recording(path) as opened:
            assert opened.run.target == "a.py"
    assert is_journal(path) is not folded
    if not folded:
        assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_payload_is_no_end(tmp_path: Path) -> None:
    path = tmp_path / "a.dynadiag"
    made = Journal.create(path)
    made.append({"dynadiag_run": {"target": "a.py", "host": "another", "pid": 1}})
    made.append({"a": {}}, 'V1126 10:00:00.000000 1 a.py:1] {"dynadiag_end": {}}')
    assert not has_ended(path)
    made.append(END)
    made.append({"b": {}}, "x" * 100)
    made.close()
    assert has_ended(path)


def test_the_header_is_that_of_the_program(tmp_path: Path) -> None:
    path = journal(tmp_path / "a.dynadiag", launch={**HERE, "pid": 1}, pid=7)
    assert (journal_header(path) or {})["pid"] == 7
    assert is_being_written(path)  # process 1 is alive
    assert not is_being_written(tmp_path / "none")
    (tmp_path / "b.dynadiag").write_bytes(b"x\n")
    assert journal_header(tmp_path / "b.dynadiag") is None


def test_a_journal_that_cannot_be_replaced_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a read-only folder, or on a full disk."""
    path = journal(tmp_path / "a.dynadiag", END, **HERE, pid=GONE)
    before = path.read_bytes()

    def refuse(path: Path) -> None:
        raise UnwritableOutput(f"cannot write {path}: Read-only file system")

    monkeypatch.setattr(opening, "fold_in_place", refuse)
    with open_recording(path) as opened:
        assert opened.run.complete
    assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_journal_in_a_read_only_folder_is_read(tmp_path: Path) -> None:
    path = journal(tmp_path / "a.dynadiag", END, **HERE, pid=GONE)
    tmp_path.chmod(0o555)
    with open_recording(path) as opened:
        assert opened.run.complete
    tmp_path.chmod(0o755)
