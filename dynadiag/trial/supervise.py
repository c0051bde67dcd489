"""Supervises a process from outside: its time, its memory, its output, and every process that it started."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dynadiag.trial.compiler_log import without_warnings
from dynadiag.trial.events import TrialEvent, parse_events
from dynadiag.trial.rank_stacks import RankStack, ask_ranks

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")  # of CPU time, a second
_WAITING_FACTOR = 4.0  # wall clock for each second of CPU time that a process may take
_POLL = 0.1  # seconds between looks at the clock and the output
_POLLS_PER_MEMORY_CHECK = 5  # polls between looks at /proc: walking it costs some milliseconds
_TERM_TIMEOUT = 0.5  # seconds between SIGTERM and SIGKILL
_KILL_TIMEOUT = 5.0  # seconds until what received SIGKILL is gone; one that waits for a disk may take longer
_WITH_WARNINGS = 1 << 19  # bytes of an output that are read, and mostly are warnings where a compiler failed
_OUTPUT_LIMIT = 64 << 20  # bytes of a trial's output, beyond which the file is truncated


@dataclass(frozen=True, slots=True)
class Limits:
    """``seconds`` of wall clock, and bytes of resident memory of the process with everything that it started.

    With ``of_cpu`` the seconds are CPU time of the process, which a busy machine does not change. One that waits ends
    after four times as many of wall clock. ``output`` is how many bytes of the end of what it prints are kept.
    """

    seconds: float
    memory: int
    output: int = 8000
    of_cpu: bool = False

    @classmethod
    def default(cls, seconds: float) -> Limits:
        """Nine tenths of the free memory, so that a trial that leaks does not take the machine down."""
        return cls(seconds, int(_available_memory() * 0.9))


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A running process that founded the session ``pid``.

    ``ended`` is a descriptor that becomes readable when it ends, ``events`` the read end of its events, ``output`` the
    file that it prints into. ``wait`` returns its exit code once it has ended, negative for a signal.
    """

    pid: int
    ended: int
    events: int
    output: int
    wait: Callable[[], int]


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What the supervisor saw. ``stop_reason`` is ``hang`` or ``memory`` if the supervisor ended the process itself.

    ``cpu_seconds`` are the seconds that a limit ``of_cpu`` counts. ``stacks`` are those of a job's ranks at a hang.
    """

    events: tuple[TrialEvent, ...]
    seconds: float
    stop_reason: str | None
    cpu_seconds: float = 0.0
    stacks: tuple[RankStack, ...] = ()


def longest_seconds(limits: Limits) -> float:
    """The most seconds of wall clock that a process with these limits takes."""
    return limits.seconds * (_WAITING_FACTOR if limits.of_cpu else 1.0)


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def _session_processes(leader: int) -> Iterator[tuple[int, int]]:
    """(pid, resident bytes) of each live process in the session of ``leader``."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):  # not a process, or it has ended
            if os.getsid(int(entry.name)) != leader:
                continue
            stat = (entry / "stat").read_text()
            after = stat[stat.rindex(")") + 2 :].split()
            if after[0] != "Z":
                yield int(entry.name), int(after[21]) * _PAGE


def descendant_sessions(process: int) -> set[int]:
    """The sessions of the descendants of a process: launchers, such as ``torchrun``, give each rank one of its own."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):  # not a process, or it has ended
            pid, stat = int(entry.name), (entry / "stat").read_bytes()
            children[int(stat[stat.rindex(b")") + 2 :].split(maxsplit=2)[1])].append(pid)
    found: set[int] = set()
    waiting = [process]
    while waiting:
        below = children.pop(waiting.pop(), [])
        waiting += below
        for pid in below:
            with suppress(ProcessLookupError):
                found.add(os.getsid(pid))
    return found


def session_memory(leader: int) -> int:
    """Resident bytes of all processes in the session of ``leader``."""
    return sum(size for _, size in _session_processes(leader))


def kill_session(leader: int) -> None:
    """End all processes in the session: the leader at once, the others after a moment to clean up. Wait for their end.

    A C++ compiler that receives SIGTERM removes its unfinished output. Left in Inductor's cache, half a library would
    be loaded by every later run, also the user's own. Forks of a fork belong to the session unless they started their
    own.
    """
    found = [pid for pid, _ in _session_processes(leader)]
    for pid in found:
        _send(pid, signal.SIGKILL if pid == leader else signal.SIGTERM)
    left = [pid for pid in found if pid != leader]
    deadline = time.monotonic() + _TERM_TIMEOUT
    while left and time.monotonic() < deadline:
        time.sleep(_TERM_TIMEOUT / 20)
        left = [pid for pid, _ in _session_processes(leader) if pid != leader]
    for pid in left:
        _send(pid, signal.SIGKILL)
    while found and any(_session_processes(leader)) and time.monotonic() < deadline + _KILL_TIMEOUT:
        time.sleep(_TERM_TIMEOUT / 20)


def kill_descendants(leader: int, sessions: Collection[int] = ()) -> None:
    """End a session as `kill_session` does, these other ones, and those of its descendants."""
    others = {*sessions, *descendant_sessions(leader)} - {leader}
    for each in (leader, *others):
        kill_session(each)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def supervise(process: RunningProcess, limits: Limits) -> ProcessResult:
    """Wait until the process ends, enforce the limits, and collect its events. Closes no descriptor."""
    start = time.monotonic()
    data = bytearray()
    stop_reason: str | None = None
    stacks: tuple[RankStack, ...] = ()
    sessions: set[int] = set()  # also of ranks that outlive their launcher
    for poll in range(1 << 62):
        waiting = [process.ended] if stop_reason else [process.ended, process.events]
        readable, _, _ = select.select(waiting, [], [], _POLL)
        if process.events in readable and not _drain(process.events, data):
            select.select([process.ended], [], [], _POLL)
        if process.ended in readable:
            break
        if stop_reason is None:
            if poll and poll % _POLLS_PER_MEMORY_CHECK == 0:
                # The number of a session that has ended may soon be that of a stranger's.
                sessions = {each for each in sessions if any(_session_processes(each))}
                sessions |= descendant_sessions(process.pid)
            stop_reason = exceeded_limit(process.pid, limits, time.monotonic() - start, poll, sessions)
            if stop_reason:
                stacks = ask_ranks(parse_events(bytes(data))) if stop_reason == "hang" else ()
                kill_descendants(process.pid, sessions)
        prints_much = poll % _POLLS_PER_MEMORY_CHECK == 0 and os.fstat(process.output).st_size > _OUTPUT_LIMIT
        if prints_much:  # a program that prints without end: what comes later is kept
            os.ftruncate(process.output, 0)
    seconds = time.monotonic() - start
    cpu_seconds = _cpu_or_waiting(process.pid, seconds)  # nobody has waited for the process yet
    for session in (process.pid, *sessions - {process.pid}):
        kill_session(session)
    while select.select([process.events], [], [], 0)[0] and _drain(process.events, data):
        continue
    return ProcessResult(tuple(parse_events(bytes(data))), seconds, stop_reason, cpu_seconds, stacks)


def exceeded_limit(
    leader: int, limits: Limits, seconds: float, poll: int, sessions: Collection[int] = ()
) -> str | None:
    """``hang`` or ``memory`` where a session has exceeded a limit. Not each ``poll``, from 0, looks at /proc.

    The memory of these other ``sessions`` counts too.
    """
    if limits.of_cpu:
        seconds = _cpu_or_waiting(leader, seconds)
    if seconds > limits.seconds:
        return "hang"
    if poll % _POLLS_PER_MEMORY_CHECK == 0 and sum(map(session_memory, {leader, *sessions})) > limits.memory:
        return "memory"
    return None


def _cpu_or_waiting(pid: int, seconds: float) -> float:
    """What a limit of CPU time counts of a process that runs since ``seconds``: one that waits takes time too."""
    return max(_cpu_seconds(pid), seconds / _WAITING_FACTOR)


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that have ended; 0 where the process has ended."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, after[11:15])) / _TICKS


def _drain(report: int, data: bytearray) -> bool:
    chunk = os.read(report, 1 << 16)
    data += chunk
    return bool(chunk)


def read_tail(output: int, size: int = 8000) -> str:
    """The last ``size`` characters of the output, without a C++ compiler's warnings, which can fill more than that."""
    end = os.fstat(output).st_size
    data = os.pread(output, max(size, _WITH_WARNINGS), max(0, end - max(size, _WITH_WARNINGS)))
    text = data.decode("utf-8", "replace").lstrip("\0")
    return "\n".join(without_warnings(text.split("\n")))[-size:] if ": warning: " in text else text[-size:]
