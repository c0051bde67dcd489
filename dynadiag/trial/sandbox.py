"""The surroundings of a trial: a temporary folder, the program's environment, and the files that it changes."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from itertools import islice
from pathlib import Path

# Each variable, and the subfolder of our own caches
_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
_HEADERS = "precompiled_headers"  # in torch's default cache folder, even where TORCHINDUCTOR_CACHE_DIR is set


def trial_environment(scratch: Path, more: Mapping[str, str], *, fresh_caches: bool = False) -> dict[str, str]:
    """The program's environment plus what a trial adds: a mark, and ``scratch`` as its temporary folder.

    Inductor's default cache folder is in the temporary folder. A variable names it, so that trials use the program's
    own. ``more`` is added last; ``fresh_caches`` turns the compiler's caches off.
    """
    environment = {**os.environ, "DYNADIAG_TRIAL": "1", "TMPDIR": str(scratch)}
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(default_inductor_cache()))
    for ours in ("DYNADIAG_RECORD", "DYNADIAG_JOIN"):
        environment.pop(ours, None)
    if fresh_caches:
        environment |= {
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
            "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0",
        }
    return {**environment, **more}


def default_inductor_cache() -> Path:
    """Inductor's default cache folder, as torch computes it if its variable is not set."""
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    return Path(tempfile.gettempdir(), f"torchinductor_{user}")


def cache_variables(folder: Path) -> dict[str, str]:
    """Environment variables that put the caches of Inductor and Triton into ``folder``."""
    return {variable: str(folder / name) for variable, name in _CACHES.items()}


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox of one process: a temporary folder, a file to print into, and a pipe for its events.

    ``writing`` is the process's end of the pipe. It must be closed here once the process has it, or the pipe never
    ends. It is a file object, since closing a bare descriptor twice could close one that another thread has opened
    meanwhile.
    """

    scratch: Path
    output: int
    reading: int
    writing: FileIO


class Sandboxes:
    """The temporary folder of a series of trials, with a subfolder for each.

    torch precompiles its C++ headers once per user, into a folder under the temporary folder, which takes seconds.
    Trials share the headers that exist already, or else those of the first trial. With ``own_headers`` each trial makes
    its own.
    """

    def __init__(self, *, own_headers: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dynadiag-"))
        self._headers = None if own_headers else self._shared_headers()
        self._link_headers(self.folder)

    def _shared_headers(self) -> Path:
        existing = default_inductor_cache() / _HEADERS
        if existing.is_dir() and os.access(existing, os.W_OK):
            return existing
        (own := self.folder / _HEADERS).mkdir()
        return own

    def _link_headers(self, scratch: Path) -> None:
        if self._headers is not None:
            link = scratch / default_inductor_cache().name / _HEADERS
            link.parent.mkdir()
            link.symlink_to(self._headers)

    def make_scratch(self) -> Path:
        scratch = Path(tempfile.mkdtemp(dir=self.folder))
        self._link_headers(scratch)
        return scratch

    @contextmanager
    def create(self) -> Iterator[Sandbox]:
        """The sandbox of one trial, removed afterwards."""
        scratch = self.make_scratch()
        output = os.open(scratch.with_suffix(".out"), os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        reading, end = os.pipe()
        writing = FileIO(end, "w")
        try:
            yield Sandbox(scratch, output, reading, writing)
        finally:
            os.close(output)
            os.close(reading)
            writing.close()
            scratch.with_suffix(".out").unlink(missing_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)

    def own_folders(self, more: Mapping[str, str]) -> list[Path]:
        """The folders that every trial writes into: ours, and the compiler's caches."""
        environment = trial_environment(self.folder, more)
        caches = (environment[name] for name in _CACHES if name in environment)
        return [self.folder, default_inductor_cache(), *(Path(cache).absolute() for cache in caches)]

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


_MAX_DEPTH = 2  # levels of subfolders
_MAX_ENTRIES = 5_000  # entries; the folder may be a home folder
_IGNORED_SUFFIXES = ("__pycache__", ".journal")  # what Python and our own search write there

FileSnapshot = dict[str, tuple[int, int]]  # path -> (modification time in ns, size in bytes)


def snapshot(folder: Path, without: Collection[Path] = ()) -> FileSnapshot:
    """The files in a folder at present, without those below the folders ``without``."""
    return dict(islice(_entries(folder, {str(path) for path in without}, _MAX_DEPTH), _MAX_ENTRIES))


def changed_files(before: FileSnapshot, after: FileSnapshot) -> list[str]:
    """The files that are new, removed or changed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _entries(folder: Path, without: Collection[str], deep: int) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_IGNORED_SUFFIXES) or entry.path in without:
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield entry.path, (status.st_mtime_ns, status.st_size)
                elif deep:
                    yield from _entries(Path(entry.path), without, deep - 1)
    except OSError:  # it is gone, or cannot be read
        return
