"""The end of a trial, with every process that it started."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from dynadiag.trial.supervise import Limits, RunningProcess, kill_session, supervise

_LEADER = """
import subprocess, sys, time
child = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
subprocess.Popen(child, start_new_session=len(sys.argv) > 3)
time.sleep(600)
"""
_CLEANS_UP = """
import pathlib, signal, sys, time
file = pathlib.Path(sys.argv[1])
def end(*_):
    file.unlink()
    sys.exit()
signal.signal(signal.SIGTERM, end)
file.write_text("half a library")
time.sleep(600)
"""
_STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""


def _leader(child: str, file: Path, *arguments: str) -> subprocess.Popen[bytes]:
    leader = subprocess.Popen([sys.executable, "-c", _LEADER, child, str(file), *arguments], start_new_session=True)
    while not (file.exists() and file.read_text()):
        time.sleep(0.02)
    return leader


def test_a_child_process_may_remove_its_unfinished_file(tmp_path: Path) -> None:
    leader = _leader(_CLEANS_UP, tmp_path / "kernel.so")
    kill_session(leader.pid)
    assert leader.wait() < 0
    assert not (tmp_path / "kernel.so").exists()


def test_a_child_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    leader = _leader(_STUBBORN, tmp_path / "pid")
    kill_session(leader.pid)
    assert leader.wait() < 0
    _wait_for_end(tmp_path / "pid")


def test_a_rank_with_a_session_of_its_own_ends_with_its_launcher(tmp_path: Path) -> None:
    leader = _leader(_STUBBORN, tmp_path / "pid", "session")
    with tempfile.TemporaryFile() as output:
        ended, (events, writer) = os.pidfd_open(leader.pid), os.pipe()
        os.close(writer)
        result = supervise(RunningProcess(leader.pid, ended, events, output.fileno(), leader.wait), Limits(1, 1 << 40))
        for descriptor in (ended, events):
            os.close(descriptor)
    assert result.stop_reason == "hang"
    assert leader.wait() < 0
    _wait_for_end(tmp_path / "pid")


def _wait_for_end(file: Path) -> None:
    stat = Path("/proc", file.read_text(), "stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.02)


@pytest.mark.parametrize(("code", "reason"), [("while True: pass", "hang"), ("time.sleep(1.5)", None)])
def test_a_limit_of_cpu_time_does_not_count_the_time_that_a_process_waits(code: str, reason: str | None) -> None:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-c", f"import time\n{code}"], start_new_session=True)
        ended, (events, writer) = os.pidfd_open(process.pid), os.pipe()
        running = RunningProcess(process.pid, ended, events, output.fileno(), process.wait)
        os.close(writer)
        result = supervise(running, Limits(1.0, 1 << 40, of_cpu=True))
        process.wait()
        for descriptor in (ended, events):
            os.close(descriptor)
    assert result.stop_reason == reason
    assert (result.cpu_seconds > 1.0) == (reason is not None)
