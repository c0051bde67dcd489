"""Watching a process from outside: its time, its memory, what it prints, and everything that it started."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.trial.report import lines

__all__ = ["Limits", "Watched", "kill_session", "session_memory", "tail", "watch"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_POLL = 0.1  # seconds between looks at the clock and the output
_MEMORY_EVERY = 5  # polls between looks at /proc: walking it costs some milliseconds
_GRACE = 0.5  # seconds for what a trial started to end by itself
_OUTPUT_LIMIT = 64 << 20  # bytes of a trial's output that are kept; what is printed beyond is dropped from the file


@dataclass(frozen=True, slots=True)
class Limits:
    """``seconds`` of wall clock, and bytes of resident memory of the process with all that it started."""

    seconds: float
    memory: int

    @classmethod
    def default(cls, seconds: float) -> Limits:
        """Nine tenths of what the machine has free: a runaway trial must not take the machine down."""
        return cls(seconds, int(_available() * 0.9))


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen. ``stopped`` is ``hang`` or ``memory`` where the supervisor ended it."""

    events: tuple[dict[str, Any], ...]
    seconds: float
    stopped: str | None


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def _session(leader: int) -> Iterator[tuple[int, int]]:
    """(pid, resident bytes) of each live process in the session that ``leader`` founded."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):  # no process's, or it ended while we looked
            if os.getsid(int(entry.name)) != leader:
                continue
            stat = (entry / "stat").read_text()
            after = stat[stat.rindex(")") + 2 :].split()
            if after[0] != "Z":
                yield int(entry.name), int(after[21]) * _PAGE


def session_memory(leader: int) -> int:
    return sum(size for _, size in _session(leader))


def kill_session(leader: int) -> None:
    """Ends everything in the session: the leader at once, what it started after a moment to clean up.

    A C++ compiler that is asked to end removes the half of a library that it has written. Left in Inductor's cache
    that half would be loaded by every later run, the user's own too. Forks of a fork are in the session, unless they
    founded their own.
    """
    found = [pid for pid, _ in _session(leader)]
    for pid in found:
        _send(pid, signal.SIGKILL if pid == leader else signal.SIGTERM)
    left = [pid for pid in found if pid != leader]
    deadline = time.monotonic() + _GRACE
    while left and time.monotonic() < deadline:
        time.sleep(_GRACE / 20)
        left = [pid for pid, _ in _session(leader) if pid != leader]
    for pid in left:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def watch(leader: int, ended: int, report: int, limits: Limits, output: int) -> Watched:
    """Waits for the session ``leader`` until ``ended`` (a descriptor) becomes readable, and collects its report.

    Both descriptors stay open. ``output`` is the file that it prints into.
    """
    start = time.monotonic()
    data = bytearray()
    stopped: str | None = None
    for poll in range(1 << 62):
        readable, _, _ = select.select([ended, report] if stopped is None else [ended], [], [], _POLL)
        if report in readable and not _drain(report, data):
            select.select([ended], [], [], _POLL)
        if ended in readable:
            break
        if stopped is None:
            stopped = _exceeded(leader, limits, time.monotonic() - start, poll)
            if stopped:
                kill_session(leader)
        if poll % _MEMORY_EVERY == 0:
            _cap(output)
    seconds = time.monotonic() - start
    kill_session(leader)
    _drain_rest(report, data)
    return Watched(tuple(lines(bytes(data))), seconds, stopped)


def _exceeded(leader: int, limits: Limits, seconds: float, poll: int) -> str | None:
    if seconds > limits.seconds:
        return "hang"
    if poll % _MEMORY_EVERY == 0 and session_memory(leader) > limits.memory:
        return "memory"
    return None


def _drain(report: int, data: bytearray) -> bool:
    chunk = os.read(report, 1 << 16)
    data += chunk
    return bool(chunk)


def _drain_rest(report: int, data: bytearray) -> None:
    while select.select([report], [], [], 0)[0] and _drain(report, data):
        continue


def _cap(output: int) -> None:
    """A program that prints without end fills no disk: the file starts over, and keeps what comes last."""
    if os.fstat(output).st_size > _OUTPUT_LIMIT:
        os.ftruncate(output, 0)


def tail(output: int, size: int = 8000) -> str:
    """The end of what was printed, as text."""
    end = os.fstat(output).st_size
    data = os.pread(output, size, max(0, end - size))
    return data.decode("utf-8", "replace").lstrip("\0")
