"""Run a program under the recorder, in a process of its own, as ``python FILE.py ARGS...`` would run it.

The recorder is loaded through torch's own entry point (`dynadiag.autoload`). The command line, ``sys.path`` and the
environment are the same as without us.
"""

from __future__ import annotations

import glob
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType

from dynadiag.capture.run_metadata import run_header
from dynadiag.capture.settings import Settings
from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import SUFFIX, Journal
from dynadiag.recording.opening import journal_header

__all__ = ["ProcessEnd", "Streams", "launch", "launch_counted", "launch_job", "launch_plain", "record_exit"]

Streams = tuple[int | None, int | None]

_MAX_INTERRUPTS = 2  # times that Ctrl-C is left to the program; the next one kills it


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a recorded program ended. ``other_journals`` are those of its other processes, by rank."""

    exit_code: int
    seconds: float
    interrupted: bool
    other_journals: tuple[Path, ...]


def launch(
    command: Sequence[str],
    journal: Path,
    settings: Settings,
    variables: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    streams: Streams = (None, None),
    limit: float | None = None,
) -> ProcessEnd:
    """Run ``command`` with its main process recorded into ``journal``, and append how the program ended.

    ``variables`` are added to its environment, ``notes`` to the recording. ``streams`` are the descriptors of its
    stdout and stderr where these are not ours, ``limit`` the seconds after which it is killed. Raises `DynadiagError`
    if the recorder is not installed in this interpreter.
    """
    _check_installed()
    journal = journal.absolute()
    settings = replace(settings, journal=str(journal), parent=os.getpid())
    environment = {**os.environ, **(variables or {}), **settings.environment(str(journal.parent))}
    ended = _run(command, environment, streams, limit)
    others = tuple(sorted(_find_other_journals(journal), key=_rank_order))
    _record_end(journal, settings, ended.exit_code, ended.seconds, others, notes)
    return replace(ended, other_journals=others)


def launch_job(command: Sequence[str], folder: Path, settings: Settings) -> ProcessEnd:
    """Run any command. Each of its processes that compiles, or joins a process group, records itself in ``folder``.

    Raises `DynadiagError` if the command cannot be started.
    """
    _check_installed()
    before = set(folder.glob(f"*{SUFFIX}"))
    try:
        ended = _run(command, {**os.environ, **settings.environment(str(folder.absolute()))})
    except OSError as error:
        raise DynadiagError(f"cannot run {command[0][:200]}: {error.strerror}") from error
    return replace(ended, other_journals=tuple(sorted(set(folder.glob(f"*{SUFFIX}")) - before, key=_rank_order)))


def launch_plain(command: Sequence[str], variables: Mapping[str, str]) -> ProcessEnd:
    """Run a program with these variables added to its environment. Nothing is recorded."""
    return _run(command, {**os.environ, **variables})


def launch_counted(
    command: Sequence[str], folder: Path, settings: Settings, variables: Mapping[str, str]
) -> ProcessEnd:
    """Run a program without its output. Each of its processes writes the counts of its operator calls to ``folder``.

    Nothing is recorded. The program's standard input is empty, because an earlier run has read it.
    """
    settings = replace(settings, parent=os.getpid(), coverage=str(folder))
    environment = {**os.environ, **variables, **settings.environment(str(folder))}
    return _run(command, environment, (subprocess.DEVNULL, subprocess.DEVNULL), stdin=subprocess.DEVNULL)


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    streams: Streams = (None, None),
    limit: float | None = None,
    stdin: int | None = None,
) -> ProcessEnd:
    began = time.time()
    process = subprocess.Popen(command, env=environment, stdin=stdin, stdout=streams[0], stderr=streams[1])
    with _SignalForwarder(process) as signals:
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    return ProcessEnd(code, time.time() - began, signals.interrupts > 0, ())


def _check_installed() -> None:
    if not any(entry.name == "dynadiag" for entry in entry_points(group="torch.backends")):
        raise DynadiagError(
            "dynadiag is not installed in this environment, so torch cannot load its recorder: pip install dynadiag"
        )


def _find_other_journals(journal: Path) -> Iterator[Path]:
    """The journals of the program's other processes: those beside the main one that name us as their launcher."""
    for path in journal.parent.glob(f"{glob.escape(journal.stem)}-*{SUFFIX}"):
        header = journal_header(path)
        if header is not None and header.get("launcher") == os.getpid():
            yield path


def _rank_order(path: Path) -> tuple[int, str]:
    rank = re.search(r"-rank(\d+)\.dynadiag$", path.name)
    return (int(rank[1]) if rank else sys.maxsize, path.name)


def record_exit(journal: Path, code: int | None, seconds: float, notes: Sequence[str] = ()) -> None:
    """Append to a program's journal how it ended: its exit code, negative for a signal, and how long it ran."""
    end = Journal.reopen(journal)
    end.append({"dynadiag_exit": {"code": code, "seconds": seconds, "notes": list(notes)}})
    end.close()


def _record_end(
    journal: Path, settings: Settings, code: int, seconds: float, others: Sequence[Path], extra_notes: Sequence[str]
) -> None:
    notes = list(extra_notes)
    if not journal.exists():
        Journal.create(journal).append({"dynadiag_run": run_header(settings.target, os.getpid())})
        notes.append(_why_not_recorded())
    if others:
        one = len(others) == 1
        number = "1 other process" if one else f"{len(others)} other processes"
        notes.append(
            f"{number} of the program {'has a recording of its own' if one else 'have recordings of their own'}"
        )
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1" or os.environ.get("TORCH_COMPILE_DISABLE") == "1":
        notes.append("the environment disables torch.compile (TORCHDYNAMO_DISABLE or TORCH_COMPILE_DISABLE is 1)")
    record_exit(journal, code, seconds, notes)


def _why_not_recorded() -> str:
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return "TORCH_DEVICE_BACKEND_AUTOLOAD is 0 in this environment: torch did not load the recorder"
    return "the program never imported torch, or ended before it had"


class _SignalForwarder:
    """Leaves Ctrl-C to the program while it runs, but kills it at the third one. SIGTERM is passed on."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.interrupts = 0

    def __enter__(self) -> _SignalForwarder:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self._process.terminate()
            return
        self.interrupts += 1
        if self.interrupts > _MAX_INTERRUPTS:
            self._process.kill()
        elif not _in_foreground():
            self._process.send_signal(signal.SIGINT)


def _in_foreground() -> bool:
    """Whether we are in a terminal's foreground group: then its Ctrl-C also went to the program."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
