"""Work in a process of its own ends with those who asked for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dynadiag.errors import DynadiagError
from dynadiag.kernels import isolated_job


def test_what_runs_is_ended_with_what_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "import subprocess, sys\nfrom pathlib import Path\n"
    module += f"child = subprocess.Popen(['cat', {str(tmp_path / 'pipe')!r}])\n"
    module += f"Path({str(tmp_path / 'begun')!r}).write_text(str(child.pid))\nchild.wait()\n"
    (tmp_path / "waits_for_ever.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    os.mkfifo(tmp_path / "pipe")  # nobody ever writes
    told: list[str] = []

    def ask() -> None:
        try:
            isolated_job.run_isolated("waits_for_ever", {}, dict, "waiting")
        except DynadiagError as error:
            told.append(str(error))

    worker = threading.Thread(target=ask)
    worker.start()
    while not (tmp_path / "begun").exists() or not (tmp_path / "begun").read_text():
        worker.join(0.01)
        assert worker.is_alive()
    isolated_job.stop_all()
    worker.join(30)
    assert told == ["waiting: the process ended with -9: it said nothing"]
    child = int((tmp_path / "begun").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"
