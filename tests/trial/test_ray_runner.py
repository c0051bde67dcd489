"""Trials as tasks of Ray: the worker has the folder and the environment of the command, and its own back afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynadiag.errors import DynadiagError
from dynadiag.trial.ray_session import command_context


def test_a_worker_has_the_surroundings_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray sets it
    before = Path.cwd(), dict(os.environ)
    with command_context(str(tmp_path), {"PATH": "/bin"}):
        assert (Path.cwd(), dict(os.environ)) == (tmp_path, {"PATH": "/bin"})
    assert (Path.cwd(), dict(os.environ)) == before


def test_a_machine_without_the_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(DynadiagError, match="has no folder"), command_context(str(tmp_path / "nowhere"), {}):
        pass
