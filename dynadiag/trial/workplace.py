"""Where a trial runs: a temporary folder of its own, and the program's environment with a few words more."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

__all__ = ["Workplace", "Workplaces", "default_cache", "environment_of", "own_caches"]

_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}  # variables, and folders of our own
_HEADERS = "precompiled_headers"  # in torch's default cache folder, wherever TORCHINDUCTOR_CACHE_DIR points


def environment_of(scratch: Path, more: Mapping[str, str], *, fresh_caches: bool = False) -> dict[str, str]:
    """The program's own environment, with what a trial adds: a mark, and ``scratch`` as its temporary folder.

    Inductor's cache folder hangs off the temporary folder unless it is named; it stays where the program has it.
    """
    environment = {**os.environ, "DYNADIAG_TRIAL": "1", "TMPDIR": str(scratch)}
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(default_cache()))
    for ours in ("DYNADIAG_RECORD", "DYNADIAG_JOIN"):
        environment.pop(ours, None)
    if fresh_caches:
        environment |= {
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
            "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0",
        }
    return {**environment, **more}


def default_cache() -> Path:
    """Inductor's cache folder where its variable is not set, as torch names it."""
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    return Path(tempfile.gettempdir(), f"torchinductor_{user}")


def own_caches(folder: Path) -> dict[str, str]:
    """Has compilers keep their caches there: Inductor, and Triton, whose folder is not below Inductor's by itself."""
    return {variable: str(folder / name) for variable, name in _CACHES.items()}


@dataclass(frozen=True, slots=True)
class Workplace:
    """What one process has: a temporary folder, a file to print into, a pipe to report through.

    ``writing`` is that pipe's end for the process. It is closed here once the process has it, or nobody would see its
    end; it is no bare number, since a second closing would close what another thread has opened by then.
    """

    scratch: Path
    output: int
    reading: int
    writing: FileIO


class Workplaces:
    """The folder of one series of trials, with a folder in it for each.

    Torch compiles its C++ headers once for all programs of a user, into a folder that hangs off the temporary one: it
    is seconds of the C++ compiler. A trial finds those that are there already, or else those of the trials before it;
    with ``own_headers`` each makes its own.
    """

    def __init__(self, *, own_headers: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dynadiag-"))
        self._headers = None if own_headers else self._shared_headers()
        self._link_headers(self.folder)

    def _shared_headers(self) -> Path:
        existing = default_cache() / _HEADERS
        if existing.is_dir() and os.access(existing, os.W_OK):
            return existing
        (own := self.folder / _HEADERS).mkdir()
        return own

    def _link_headers(self, scratch: Path) -> None:
        if self._headers is not None:
            link = scratch / default_cache().name / _HEADERS
            link.parent.mkdir()
            link.symlink_to(self._headers)

    def scratch(self) -> Path:
        """A temporary folder for one process."""
        scratch = Path(tempfile.mkdtemp(dir=self.folder))
        self._link_headers(scratch)
        return scratch

    @contextmanager
    def one(self) -> Iterator[Workplace]:
        """That of a trial, gone afterwards."""
        scratch = self.scratch()
        output = os.open(scratch.with_suffix(".out"), os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        reading, end = os.pipe()
        writing = FileIO(end, "w")
        try:
            yield Workplace(scratch, output, reading, writing)
        finally:
            os.close(output)
            os.close(reading)
            writing.close()
            scratch.with_suffix(".out").unlink(missing_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)

    def not_the_programs(self, more: Mapping[str, str]) -> list[Path]:
        """Folders that a trial writes into of itself, wherever they may be: ours, and the compiler's caches."""
        environment = environment_of(self.folder, more)
        caches = (environment[name] for name in _CACHES if name in environment)
        return [self.folder, default_cache(), *(Path(cache).absolute() for cache in caches)]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
