"""The processes of a job, each with its recording: which rank it is, on which host, after which restart, how it ended.

A process is a rank if its launcher numbered it or if it is in a process group. Others are the launcher itself, and
workers that inherit a rank's environment (of a DataLoader).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.explanation.run_end import read_frames
from dynadiag.explanation.source import first_event_data
from dynadiag.job.trace import RankTrace, TraceReader
from dynadiag.recording.json_values import int_or_none, text_or_none
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Frame


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a job and what it did.

    ``problem`` says why its recording cannot be read. ``uncaught`` is the exception that it ended with, ``stack`` the
    user's frames that this passed, outermost first. ``complete`` is False if the recorder did not see its end. A log of
    torch's own says nothing of it. ``exit_codes`` are those of the ranks that failed, by their launcher.
    """

    path: Path
    role: str  # "rank" | "launcher" | "worker" | "process"
    rank: int | None = None
    host: str | None = None
    restart: int = 0
    world_size: int | None = None
    pid: int | None = None
    parent: int | None = None
    exit_code: int | None = None
    complete: bool = False
    uncaught: str | None = None
    message: str | None = None
    stack: tuple[Frame, ...] = ()
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None
    trace: RankTrace | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """How a report calls the process."""
        if self.role == "rank":
            return f"rank {self.rank}" + (f" (restart {self.restart})" if self.restart else "")
        return f"process {self.pid}" if self.pid is not None else self.path.stem


@dataclass(frozen=True, slots=True)
class Job:
    """All processes of a job: its ranks by restart and rank, then the others."""

    processes: tuple[Process, ...]

    @property
    def ranks(self) -> tuple[Process, ...]:
        """The ranks whose recordings could be read."""
        return tuple(each for each in self.processes if each.role == "rank" and each.trace is not None)

    @property
    def unreadable(self) -> tuple[Process, ...]:
        return tuple(each for each in self.processes if each.problem is not None)

    @property
    def restarts(self) -> tuple[int, ...]:
        """The numbers of restarts that some rank has a recording of, in order."""
        return tuple(sorted({each.restart for each in self.ranks}))

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has, as its launcher said."""
        said = [each.world_size for each in self.ranks if each.world_size is not None]
        return max(said, default=None)

    def missing(self, restart: int = 0) -> tuple[int, ...]:
        here = {each.rank for each in self.processes if each.role == "rank" and each.restart == restart}
        return tuple(rank for rank in range(self.world_size or 0) if rank not in here)


def open_job(paths: Iterable[Path]) -> Job:
    """Read the recordings of a job, and fold the journals of ended processes.

    A recording that cannot be read is kept as a problem.
    """
    reader = TraceReader()
    found = [_read(path, reader) for path in paths]
    by_pid: dict[tuple[str | None, int | None], Process] = {
        (each.host, each.pid): each for each in found if each.pid is not None
    }
    parents = {(each.host, each.parent) for each in found if each.role == "rank"}
    made = []
    for each in found:
        above = by_pid.get((each.host, each.parent))
        if each.problem is not None:
            made.append(_named(each))
        elif each.role == "rank" and above is not None and above.rank == each.rank:
            made.append(replace(each, role="worker"))
        elif each.role == "process" and (each.host, each.pid) in parents:
            made.append(replace(each, role="launcher"))
        else:
            made.append(each)
    return Job(tuple(sorted(_with_exit_codes(_numbered(made)), key=_order)))


def _order(item: Process) -> tuple[bool, int, int, str]:
    return item.role != "rank", item.restart, item.rank if item.rank is not None else -1, item.path.name


def _read(path: Path, reader: TraceReader) -> Process:
    try:
        with open_recording(path) as recording:
            return _process(path, recording, reader)
    except DynadiagError as error:
        return Process(path, "process", problem=str(error))


def _process(path: Path, recording: Recording, reader: TraceReader) -> Process:
    run, head = recording.run, first_event_data(recording, "dynadiag_run")
    end = first_event_data(recording, "dynadiag_end")
    place: dict[str, Any] = found if isinstance(found := head.get("job"), dict) else {}
    trace = reader.read(recording)
    # Read exit codes by rank from JSON, where the keys are strings.
    value = end.get("exit_codes")
    codes = value.items() if isinstance(value, dict) else ()
    return Process(
        path=path,
        role="rank" if run.rank is not None else "process",
        rank=run.rank,
        host=text_or_none(head.get("host")),
        restart=int_or_none(place.get("restart")) or 0,
        world_size=trace.world_size or int_or_none(place.get("world_size")),
        pid=run.pid,
        parent=int_or_none(head.get("parent")),
        exit_code=run.exit_code,
        complete=run.complete or run.is_foreign,
        uncaught=text_or_none(end.get("uncaught")),
        message=text_or_none(end.get("message")),
        stack=read_frames(end.get("stack")),
        exit_codes={int(rank): code for rank, code in codes if str(rank).isdecimal() and type(code) is int},
        started=run.started,
        ended=end.get("ended") if isinstance(end.get("ended"), float) else None,
        trace=trace,
    )


def _with_exit_codes(found: Sequence[Process]) -> list[Process]:
    """Give the ranks of the last restart the exit codes that their launcher saw. A killed rank cannot write its own."""
    last = max((each.restart for each in found if each.role == "rank"), default=0)
    seen = {(each.host, each.pid): each.exit_codes for each in found if each.role == "launcher"}
    made = []
    for each in found:
        code = seen.get((each.host, each.parent), {}).get(each.rank if each.rank is not None else -1)
        known = code is None or each.exit_code is not None or each.role != "rank" or each.restart < last
        made.append(each if known else replace(each, exit_code=code))
    return made


def _named(item: Process) -> Process:
    lead, mark, number = item.path.stem.rpartition("-rank")
    return replace(item, role="rank", rank=int(number)) if lead and mark and number.isdecimal() else item


def _numbered(found: Sequence[Process]) -> list[Process]:
    """Two recordings of one rank and restart are two generations: the later one counts as a restart more."""
    seen: Counter[tuple[int | None, int]] = Counter()
    made = []
    for each in sorted(found, key=lambda item: item.started or 0.0):
        if each.role == "rank":
            while seen[each.rank, each.restart]:
                each = replace(each, restart=each.restart + 1)
            seen[each.rank, each.restart] += 1
        made.append(each)
    return made
