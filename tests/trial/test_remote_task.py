"""A long task in the program's process: it is asked to stop when its time is over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dynadiag.trial import remote_task
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.remote_task import run_task
from dynadiag.trial.runner import Runner

_ENDLESS = """
import signal

class Stopped(BaseException): pass
def stop(*_): raise Stopped
signal.signal(signal.SIGINT, {handler})
while True:
    signal.pause()
"""


def _run(folder: Path, handler: str) -> tuple[float, bool]:
    """The seconds that an endless task took, and whether it counts as interrupted by the user."""
    (folder / "task.py").write_text(_ENDLESS.format(handler=handler))
    began = time.monotonic()
    with Runner(Program(str(folder / "task.py"))) as runner:
        ended = run_task(runner, Plan(), lambda _: None, seconds=0.1)
    return time.monotonic() - began, ended.interrupted


def test_a_task_is_asked_to_stop_when_its_time_is_over(tmp_path: Path) -> None:
    seconds, interrupted = _run(tmp_path, "stop")
    assert seconds < remote_task.STOP_TIMEOUT
    assert not interrupted


def test_a_task_that_does_not_stop_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_task, "STOP_TIMEOUT", 0.1)
    assert _run(tmp_path, "signal.SIG_IGN")[1] is False
