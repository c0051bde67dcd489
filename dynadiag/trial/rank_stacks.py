"""The stacks of the ranks of a job that does not end: which rank hangs, and where the others wait for it.

A rank that waits, or that runs C++, executes no Python code, so it cannot answer a message. faulthandler writes the
stack from within a signal handler all the same.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dynadiag.recording.code_origin import is_user_file
from dynadiag.trial.events import LaunchedJob, RankStarted, TrialEvent

_SIGNAL = signal.SIGRTMAX - 3  # no program is known to use it
_PAUSE = 0.3  # seconds between two looks at the answers
_LOOKS = 10  # a rank whose process stands still never answers
_BUSY = 0.03  # CPU seconds that a rank takes meanwhile if it computes, on a machine with much to do; waiting takes none
_TICKS = os.sysconf("SC_CLK_TCK")  # of CPU time, a second
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.M)
_COLLECTIVES = "/torch/distributed/"
_IN_GRAPH = re.compile(r"\bwait_tensor\b|\b_c10d_functional\b")  # on a line of generated code
_INNERMOST = 4  # frames: torch's wrappers stand between a line that waits and the end of the stack


@dataclass(frozen=True, slots=True)
class RankStack:
    """The stack of a rank as (file, line, function), the innermost first. ``busy`` says that it takes CPU time."""

    rank: int
    frames: tuple[tuple[str, int, str], ...]
    busy: bool

    @property
    def waits(self) -> bool:
        """Whether the rank is in a collective, issued by the program or by compiled code."""
        inner = self.frames[:_INNERMOST]
        return any(_COLLECTIVES in file or _IN_GRAPH.search(linecache.getline(file, line)) for file, line, _ in inner)

    @property
    def place(self) -> str:
        """The innermost line of the program's: ``train.py:31 in step``."""
        user = (frame for frame in self.frames if is_user_file(frame[0]))
        found = next(user, None) or next(iter(self.frames), None)
        return f"{Path(found[0]).name}:{found[1]} in {found[2]}" if found else "an unknown line"


def answer_with_stack(rank: int, job: LaunchedJob | None = None) -> RankStarted:
    """Have this process write its stack when the supervisor asks for it. Returns the event that tells where."""
    stack = os.memfd_create("dynadiag-stack")
    faulthandler.register(_SIGNAL, file=stack, all_threads=False)
    return RankStarted(rank, os.getpid(), f"/proc/{os.getpid()}/fd/{stack}", job)


def ask_ranks(events: Iterable[TrialEvent]) -> tuple[RankStack, ...]:
    """The stacks of the ranks that began and still run."""
    began = [event for event in events if isinstance(event, RankStarted)]
    before = {each.pid: (_cpu_seconds(each.pid), _size(each.stack)) for each in began}
    ranks = [each for each in began if _ask(each.pid)]
    sizes: list[int] = []
    for _ in range(_LOOKS if ranks else 0):
        time.sleep(_PAUSE)
        last, sizes = sizes, [_size(each.stack) for each in ranks]
        if sizes == last and all(size > before[each.pid][1] for size, each in zip(sizes, ranks, strict=True)):
            break  # all have answered, and none is writing still
    found = []
    for each in ranks:
        with suppress(OSError):  # it has ended
            seconds, start = before[each.pid]
            text = Path(each.stack).read_bytes()[start:].decode("utf-8", "replace")
            frames = tuple((file, int(line), name) for file, line, name in _FRAME.findall(text))
            busy = _cpu_seconds(each.pid) - seconds > _BUSY
            found.append(RankStack(each.rank, frames, busy))
    return tuple(sorted(found, key=lambda each: each.rank))


def _ask(pid: int) -> bool:
    """Send the signal. Returns False if the process has ended."""
    try:
        os.kill(pid, _SIGNAL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _size(file: str) -> int:
    with suppress(OSError):
        return Path(file).stat().st_size
    return 0


def _cpu_seconds(pid: int) -> float:
    with suppress(OSError, ValueError, IndexError):
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after[11]) + int(after[12])) / _TICKS
    return 0.0


def hanging_rank(stacks: Sequence[RankStack]) -> RankStack | None:
    """The rank for which the others wait. ``None`` if that cannot be said.

    The waiting of DDP's backward has no frame of its own. So of several ranks outside a collective it is the one that
    computes.
    """
    outside = [each for each in stacks if not each.waits]
    if len(outside) > 1:
        outside = [each for each in outside if each.busy]
    return outside[0] if len(outside) == 1 and len(stacks) > 1 else None


def describe_stacks(stacks: Sequence[RankStack]) -> str:
    """Where each rank was when the time was over, as a sentence."""
    does = {True: "waited in a collective", False: "was"}
    told = "; ".join(f"rank {each.rank} {does[each.waits]} at {each.place}" for each in stacks)
    return f"when the time was over, {told}"
