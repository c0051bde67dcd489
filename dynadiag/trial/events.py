"""The events that a trial's process reports to its supervisor: JSON, one object per line, over a pipe.

Each is written at once, because the process may die at the next instruction. The stream is JSON and not pickle, because
the output of a crashing process cannot be trusted.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from dynadiag.capture.run_metadata import uses_gpu
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.signature import Signature
from dynadiag.trial.typed_json import dump, to_data, typed


class TrialEvent:
    """Something that a trial's process reports. Subclasses are dataclasses, known to `parse_events` by their names."""

    __slots__ = ()
    _kinds: ClassVar[dict[str, type[Any]]] = {}

    def __init_subclass__(cls) -> None:
        TrialEvent._kinds[cls.__name__] = cls


@dataclass(frozen=True, slots=True)
class HookEvent(TrialEvent):
    """An event of a search's own hook. It is in the outcome of the trial, but not in the recording."""


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """A distributed job that the program launches: the program of its ranks, and how many they are."""

    program: Program
    ranks: int


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts that a process reports at its end. ``torch`` is ``None`` if it was never imported.

    ``backends`` are those of all compiles, ``failed_compiles`` the exceptions of backends, one line each. ``launches``
    are the kernels that Triton's interpreter ran, ``operators`` the custom operators, ``writes`` the files that
    changed. ``cuda`` says that the program used a GPU, ``disabled`` that Dynamo was turned off. ``job`` is
    that of a launcher.
    """

    torch: str | None = None
    threads: int | None = None
    backends: tuple[str, ...] = ()
    failed_compiles: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    cuda: bool = False
    disabled: bool = False
    job: LaunchedJob | None = None


def run_facts() -> RunFacts:
    """The facts of this process."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return RunFacts()
    private = importlib.import_module("dynadiag.torch_private.trial")
    compiles = "torch._dynamo.eval_frame" in sys.modules
    return RunFacts(
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        backends=tuple(private.backends_used()) if compiles else (),
        failed_compiles=tuple(private.failed_compiles()) if compiles else (),
        cuda=uses_gpu(),
        disabled=private.is_disabled(),
    )


@dataclass(frozen=True, slots=True)
class TrialEnded(TrialEvent):
    """The program, or the action, has ended. ``failure`` is ``None`` if it passed."""

    failure: Signature | None
    facts: RunFacts
    witness: tuple[str, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RankStarted(TrialEvent):
    """A rank of a distributed job has begun. At a signal, process ``pid`` writes its stack to the file ``stack``."""

    rank: int
    pid: int
    stack: str
    job: LaunchedJob | None = None


@dataclass(frozen=True, slots=True)
class RankEnded(TrialEvent):
    """A rank of a distributed job ends, with an exception or without."""

    facts: RunFacts


@dataclass(frozen=True, slots=True)
class RankFailed(TrialEvent):
    """An exception ends a rank of a distributed job, of which the program is the launcher."""

    failure: Signature
    facts: RunFacts
    witness: tuple[str, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WrongResult(TrialEvent):
    """A compared call is wrong, which ends the trial."""

    failure: Signature
    facts: RunFacts
    witness: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetUnusable(TrialEvent):
    """The target cannot be imported, or its function returns something unusable."""

    message: str


@dataclass(frozen=True, slots=True)
class Note(TrialEvent):
    """A remark for the report."""

    text: str


@dataclass(frozen=True, slots=True)
class BackendUsed(TrialEvent):
    """Dynamo calls this backend."""

    name: str


@dataclass(frozen=True, slots=True)
class OperatorUsed(TrialEvent):
    """A custom operator is traced."""

    name: str


@dataclass(frozen=True, slots=True)
class KernelLaunched(TrialEvent):
    """Triton's interpreter has run a kernel, for the first time in this trial."""

    name: str


@dataclass(frozen=True, slots=True)
class DecisionWithdrawn(TrialEvent):
    """A reported decision turned out not to be one."""

    key: str


@dataclass(frozen=True, slots=True)
class PassApplied(TrialEvent):
    """A pass ran. ``nodes`` are those that it removed or changed, ``lines`` the user's lines that they came from.

    ``key`` is that of the decision on the pass. ``added`` are the nodes that it added.
    """

    key: str
    nodes: tuple[str, ...]
    lines: tuple[tuple[str, int], ...]
    added: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoweringFailed(TrialEvent):
    """The lowering of a node raised. ``key`` is that of the decision on it."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class KernelRunning(TrialEvent):
    """From now on the kernel that computes these nodes runs; none if ``keys`` is empty."""

    keys: tuple[str, ...]
    captured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValuesDiverged(TrialEvent):
    """A kernel's values diverge from the uncompiled graph's.

    ``jump`` is the ratio of their distance to the largest distance of all kernels before. ``value`` is the node whose
    value it is; empty where the kernel was not compiled at all.
    """

    keys: tuple[str, ...]
    captured: tuple[str, ...]
    jump: float
    value: str = ""


@dataclass(frozen=True, slots=True)
class OwnTrialStarted(TrialEvent):
    """A task that cannot fork goes on as the trial of ``plan``, for at most ``seconds``."""

    plan: Plan
    seconds: float


class EventWriter:
    """The write end of the stream."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        """A path by which another process of this user can open the stream while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def reopened(self) -> EventWriter:
        """The stream for a fork of this process: the lock of `write_line` belongs to an opened file."""
        return EventWriter(os.open(f"/proc/self/fd/{self._descriptor}", os.O_WRONLY | os.O_CLOEXEC))

    def send(self, event: TrialEvent) -> None:
        write_line(self._descriptor, {"event": type(event).__name__, **to_data(event)})


def write_line(descriptor: int, record: dict[str, Any]) -> None:
    """Write a record as one line of JSON, whole even where the pipe is full or several ranks write."""
    payload = memoryview(f"{dump(record)}\n".encode())
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        while payload:
            payload = payload[os.write(descriptor, payload) :]
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """The records in the bytes that were read. A line that a crash cut short is left out."""
    for line in data.split(b"\n"):
        try:
            record = json.loads(line) if line else None
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def parse_events(data: bytes) -> Iterator[TrialEvent]:
    """The events in the bytes that were read. Lines that are not events are left out."""
    for record in parse_lines(data):
        kind = TrialEvent._kinds.get(record.pop("event", ""))
        with suppress(ValueError):  # other fields than the event has
            if kind is not None:
                yield typed(record, kind)
