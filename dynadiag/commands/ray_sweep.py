"""Records programs as tasks of Ray, on as many machines as its cluster has: `check --on ray`.

A task runs `dynadiag record` in the folder and with the environment of the command, so a program does what it does on
one machine. The machines share the file system and the Python environment. Ray runs a task again if its worker dies.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.commands import common, outputs
from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import SUFFIX
from dynadiag.trial.process import die_with_parent
from dynadiag.trial.ray_session import load_ray, ray_session

_NAME = f"run{SUFFIX}"  # of the program's own recording; others in its folder are of its child processes
_OUTPUT_BYTES = 1 << 20  # of what a program printed: its end is sent back


@dataclass(frozen=True, slots=True)
class SweptProgram:
    """A program of the sweep: the target as it was typed, and its arguments."""

    target: str
    module: bool
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The result of a task: the recordings by file name, the end of the output, the host, and the seconds it took."""

    recordings: Mapping[str, bytes]
    output: bytes
    host: str
    seconds: float


def record_on_ray(programs: Sequence[SweptProgram], args: argparse.Namespace) -> list[tuple[Path, ...]]:
    """Run each program as a task of Ray, and return the paths of their recordings, in the order of ``programs``.

    They are written to the state folder of this machine. ``args`` has the options of `add_recorder_options`.
    ``RAY_ADDRESS`` names a cluster. Without it, Ray is started on this machine and ended with the sweep.

    Raises `DynadiagError` if Ray is missing or cannot start, or if a program leaves no recording.
    """
    ray = load_ray()
    words = ["--limit", str(args.limit)]
    words += ["--no-source"] if args.no_source else []
    words += ["--fresh"] if args.fresh else []
    words += ["--stop-after", str(args.stop_after)] if args.stop_after is not None else []
    words = words + (["--target", args.gpu] if args.gpu else [])
    with contextlib.redirect_stdout(sys.stderr), ray_session(ray):  # Ray says on stdout that a worker died
        run = ray.remote(num_cpus=1, max_retries=3)(_record)
        tasks = [run.remote(each, words, str(Path.cwd()), dict(os.environ)) for each in programs]
        waiting, results = list(tasks), {}
        try:
            while waiting:
                (done,), waiting = ray.wait(waiting, num_returns=1)
                results[done] = _result(ray, done)
                _report_progress(f"{len(results)} of {len(tasks)}", programs[tasks.index(done)], results[done])
            return [_write_recordings(program, results[task]) for program, task in zip(programs, tasks, strict=True)]
        except KeyboardInterrupt:
            for task in waiting:
                ray.cancel(task, force=True)
            raise


def _record(program: SweptProgram, words: Sequence[str], folder: str, environment: Mapping[str, str]) -> _Recorded:
    """The task: record a program, and return the recordings. Runs on a worker."""
    host, began = os.uname().nodename, time.monotonic()
    if not Path(folder).is_dir():
        raise DynadiagError(f"{host} has no folder {folder}: the machines of a sweep need one file system")
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as place:
        own = Path(place, _NAME)
        command = [sys.executable, "-m", "dynadiag", "record", "-o", str(own), *words]
        command += ["-m"] * program.module + [program.target, *program.arguments]
        with Path(place, "output").open("wb+") as output:
            subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # a killed worker leaves no program behind
                check=False,
            )
            output.seek(max(0, output.tell() - _OUTPUT_BYTES))
            printed = output.read().removesuffix(f"{own}\n".encode())
        recordings = {path.name: path.read_bytes() for path in sorted(Path(place).glob(f"*{SUFFIX}"))}
    return _Recorded(recordings, printed, host, time.monotonic() - began)


def _result(ray: Any, task: Any) -> _Recorded:
    try:
        found: _Recorded = ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise DynadiagError(f"Ray: {error.cause or error}") from error
    except ray.exceptions.RayError as error:
        raise DynadiagError(f"Ray: {str(error).splitlines()[0][:300]}") from error
    return found


def _report_progress(count: str, program: SweptProgram, found: _Recorded) -> None:
    line = f"{count}: {program.target}, {found.seconds:.0f} s on {found.host}"
    print(common.for_log(line), file=sys.stderr, flush=True)  # noqa: T201


def _write_recordings(program: SweptProgram, found: _Recorded) -> tuple[Path, ...]:
    """Write the recordings here, show what the program printed, and return the paths; the program's own is first."""
    sys.stderr.buffer.write(found.output)
    sys.stderr.flush()
    if _NAME not in found.recordings:
        raise DynadiagError(f"{program.target}: it left no recording on {found.host}; see its output above")
    own = outputs.new_recording(None, program.target, force=False)
    paths = []
    for name, content in sorted(found.recordings.items(), key=lambda item: item[0] != _NAME):
        path = own if name == _NAME else own.with_name(f"{own.stem}-{name.removeprefix('run').lstrip('.-')}")
        outputs.write_file(path, content, force=False)
        paths.append(path)
    common.print_path(own)
    return tuple(paths)
