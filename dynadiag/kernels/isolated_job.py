"""Run work on the code of a recording in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dynadiag.errors import DynadiagError

T = TypeVar("T")
_TIMEOUT = 600  # seconds
_running: set[subprocess.Popen[str]] = set()


def run_isolated(module: str, job_data: object, kind: type[T], description: str) -> T:
    """Run ``python -m MODULE JOB RESULT`` in a temporary folder and return the value of type `kind` that it writes.

    Job and result are dataclasses, written as JSON. Raises `DynadiagError`, prefixed with `description`, if the process
    writes ``{"error": TEXT}`` or nothing, or if it takes more than `_TIMEOUT` seconds.
    """
    import msgspec  # 3 ms, which the first screen of the browser would wait for

    with tempfile.TemporaryDirectory(prefix="dynadiag-") as scratch:
        job, result = Path(scratch, "job.json"), Path(scratch, "result.json")
        job.write_bytes(msgspec.json.encode(job_data))
        command = [sys.executable, "-P", "-m", module, str(job), str(result)]
        returned, said = _run(command, scratch, description)
        if not result.exists():
            last = (said.strip().splitlines() or ["it said nothing"])[-1]
            raise DynadiagError(f"{description}: the process ended with {returned}: {last}")
        made: dict[str, Any] = msgspec.json.decode(result.read_bytes())
        if "error" in made:
            raise DynadiagError(f"{description}: {made['error']}")
        return msgspec.convert(made, kind, str_keys=True)


def stop_all() -> None:
    """End the processes that run, with the compilers that they have started."""
    for process in list(_running):
        _end(process)


def _run(command: list[str], scratch: str, description: str) -> tuple[int, str]:
    """The exit code of a process, and its standard error."""
    # The user's environment without variables that change generated code. Compiler caches are in the temporary folder.
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("DYNADIAG_", "TORCH_TRACE"))}
    ours.pop("TRITON_INTERPRET", None)
    process = subprocess.Popen(
        command,
        env={**ours, "TRITON_CACHE_DIR": scratch, "TORCHINDUCTOR_CACHE_DIR": scratch},
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _running.add(process)
    try:
        _, said = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise DynadiagError(f"{description}: it took more than {_TIMEOUT} s") from error
    finally:
        _running.discard(process)
        _end(process)
        process.wait()
    return process.returncode, said


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
