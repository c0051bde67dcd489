"""`render.contents`: a recording in a few lines, at a cost that does not grow with it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import open_recording
from dynadiag.render.recording_summary import recording_summary
from dynadiag.render.style import Style


def _journal(path: Path, compiles: int) -> Path:
    journal = Journal.create(path)
    journal.append({"dynadiag_run": {"target": "train\x1b[31m.py", "torch": "2.13.0", "pid": 0, "host": "?"}})
    for number in range(compiles):
        context = {"frame_id": number, "frame_compile_id": 0, "attempt": 0}
        journal.append({"dynamo_start": {"stack": []}, **context})
        journal.append({"compilation_metrics": {"has_guarded_code": True}, **context})
    journal.append({"dynadiag_exit": {"code": 3}})
    journal.close()
    return path


def test_says_what_is_in_it(tmp_path: Path) -> None:
    with open_recording(_journal(tmp_path / "run.dynadiag", 7)) as recording:
        text = recording_summary(recording, Style())
    assert "7 compiles" in text
    assert "16 events" in text
    assert "exit code 3" in text
    assert "\x1b" not in text


def test_reads_no_more_of_a_large_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in SQLite's own steps: the work of every statement that a summary runs."""
    steps = []
    connect = sqlite3.connect

    def counting(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.set_progress_handler(lambda: steps.append(1), 10)
        return connection

    def work(compiles: int) -> int:
        path = _journal(tmp_path / f"{compiles}.dynadiag", compiles)
        open_recording(path).close()  # fold it first: that is not the summary's work
        monkeypatch.setattr(sqlite3, "connect", counting)
        steps.clear()
        with open_recording(path) as recording:
            recording_summary(recording, Style())
        monkeypatch.undo()
        return len(steps)

    few, many = work(5), work(3_000)
    assert many <= few + 2
