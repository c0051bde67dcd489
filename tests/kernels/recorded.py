"""Recordings of the test programs, each made once for all workers, in a process of its own."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path

from dynadiag.kernels.generated_module import GeneratedModule
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.recording.fold import fold
from dynadiag.recording.opening import open_recording
from tests.interpreters import DYNADIAG, warm
from tests.kernels.programs import program
from tests.shared import shared_folder


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dynadiag-kernels-")


def environment(**more: str) -> dict[str, str]:
    """The tests' own environment with one state folder, a compiler cache for tests, and compiling in one process."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir(), "dynadiag-tests-inductor")))
    state = str(Path(_folder().name, "state"))
    ours = {"TORCHINDUCTOR_CACHE_DIR": cache, "XDG_STATE_HOME": state, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return {**os.environ, **ours, **more}


def record(text: str, name: str, folder: Path | None = None, *, caches: bool = False) -> Path:
    """Run a program under the recorder."""
    folder = folder or Path(_folder().name)
    path, recording = folder / f"{name}.py", folder / f"{name}.dynadiag"
    path.write_text(text)
    off = {} if caches else {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    command = [str(DYNADIAG), "explain", "--force", "-o", str(recording), str(path)]
    with warm():
        done = subprocess.run(command, env=environment(**off), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return recording


def recorded(language: str, *, changed: bool = False) -> Path:
    """The recording of the functions, or of the same with a line of each changed."""
    return _recorded(language, changed)


@functools.cache
def _recorded(language: str, changed: bool) -> Path:
    with shared_folder(f"kernels-{language}") as folder:
        kept = folder / f"{'changed' if changed else 'plain'}.dynadiag"
        if not kept.exists():
            record(program(language, changed=changed), "program", folder).rename(kept)
        return kept


@functools.cache
def read(language: str, *, changed: bool = False) -> tuple[GeneratedModule, ...]:
    """Its units."""
    with open_recording(recorded(language, changed=changed)) as recording:
        return generated_modules(recording)


@functools.cache
def foreign(language: str) -> tuple[GeneratedModule, ...]:
    """The units of the same run, from a log without the recorder's events."""
    log, recording = (Path(_folder().name, f"{language}.{suffix}") for suffix in ("log", "foreign.dynadiag"))
    with open_recording(recorded(language)) as ours:
        lines = b"".join(ours.raw()).split(b"\n")
    kept, keeps = [], True
    for line in lines:
        keeps = keeps if line.startswith(b"\t") else b'] {"dynadiag_' not in line
        if keeps:
            kept.append(line)
    log.write_bytes(b"\n".join(kept))
    fold(log, recording)
    with open_recording(recording) as theirs:
        return generated_modules(theirs)
