"""Folders that all workers of a run of pytest share, for what is made once and takes long: recordings of programs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["shared_folder", "use"]

_VARIABLE = "SHARED_BY_WORKERS"


@contextlib.contextmanager
def use() -> Iterator[None]:
    """While this lasts, there are such folders, also for the workers that are started."""
    with tempfile.TemporaryDirectory(prefix="dynadiag-tests-shared-", ignore_cleanup_errors=True) as root:
        os.environ[_VARIABLE] = root
        try:
            yield
        finally:
            del os.environ[_VARIABLE]


@contextlib.contextmanager
def shared_folder(name: str) -> Iterator[Path]:
    """The folder of this name. No other worker has it meanwhile: what is not there yet can be made."""
    folder = Path(os.environ[_VARIABLE], name)
    folder.mkdir(exist_ok=True)
    with Path(folder, ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
