"""The supervisor's end of a fork server: a process that forks a trial for each request, and replicas of it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from dynadiag.trial import zygote
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.supervise import kill_session, session_memory

__all__ = ["ForkServer", "max_parallel_forks", "run_parallel"]


@dataclass(slots=True)
class ForkServer:
    """A process that forks trials: the zygote, or the program stopped at its first compiled call or graph.

    ``leader`` is its process id and that of its process session. ``replicas`` are forks of it that fork trials too.
    """

    channel: socket.socket
    leader: int
    process: subprocess.Popen[bytes] | None = None
    replicas: list[ForkServer] = field(default_factory=list)

    def stop(self) -> None:
        """End the process and everything that it forked."""
        for twin in self.replicas:
            twin.stop()
        self.channel.close()
        kill_session(self.leader)
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)

    def wait_for_message(self, seconds: float) -> dict[str, Any]:
        """Its next message; empty where none comes within ``seconds``, or the process is gone."""
        self.channel.settimeout(seconds)
        try:
            return zygote.receive(self.channel)[0]
        except TimeoutError:
            return {}
        finally:
            self.channel.settimeout(None)

    def expect_reply(self, key: str) -> Any:
        """The value of ``key`` in its reply. Raises `EOFError` where it is gone."""
        answer = zygote.receive(self.channel)[0]
        if key not in answer:
            raise EOFError("the fork server ended")
        return answer[key]

    def with_replicas(self, count: int) -> list[ForkServer]:
        """``count`` fork servers in the same state, this one first. Raises `OSError` or `EOFError` where it is gone."""
        while len(self.replicas) < count - 1:
            self.replicas.append(self._fork({"twin": True}))
        return [self, *self.replicas[: count - 1]]

    def checkpoint(self, scratch: Path, request: dict[str, Any], plan: Plan) -> ForkServer:
        """A fork that continues the program with ``plan`` and stops at the next point where trials can be forked."""
        message = {**request, "plan": plan.to_json(), "scratch": str(scratch), "checkpoint": True}
        nowhere = os.open(os.devnull, os.O_WRONLY)  # its output and its events
        try:
            return self._fork(message, nowhere, nowhere)
        finally:
            os.close(nowhere)

    def _fork(self, message: dict[str, Any], *descriptors: int) -> ForkServer:
        """A fork that is a fork server too, with its own channel. Raises `OSError` or `EOFError` where this one is
        gone.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            zygote.send(self.channel, message, [*descriptors, theirs.fileno()])
        return ForkServer(ours, int(self.expect_reply("pid")))


RunTrial = Callable[[ForkServer, Plan], Outcome]
_MAX_MEMORY_GROWTH = 3  # a trial may use up to this many times the memory of the stopped program


def max_parallel_forks(server: ForkServer, memory: int) -> int:
    """How many forks of ``server`` may run at once: at most one per core, and only as many as fit into ``memory``
    bytes.
    """
    return min(len(os.sched_getaffinity(0)), memory // (_MAX_MEMORY_GROWTH * max(1, session_memory(server.leader))))


def run_parallel(
    trial: RunTrial, plans: Sequence[Plan], servers: Sequence[ForkServer], max_parallel: int
) -> list[Outcome]:
    """The outcomes of ``plans``, in their order, with at most ``max_parallel`` running at a time.

    ``servers`` has the fork server of each plan. A server that several plans share gets as many replicas as it needs.
    On Ctrl-C, or when a trial raises, all servers are killed with everything that runs in them, and the exception is
    raised.
    """
    begins = [id(server) for server in servers]
    alike = {id(server): server.with_replicas(min(max_parallel, begins.count(id(server)))) for server in servers}
    free: dict[int, SimpleQueue[ForkServer]] = {place: SimpleQueue() for place in alike}
    for place, twins in alike.items():
        for server in twins:
            free[place].put(server)

    def one(plan: Plan, place: int) -> Outcome:
        server = free[place].get()
        try:
            return trial(server, plan)
        finally:
            free[place].put(server)

    with ThreadPoolExecutor(max_parallel) as pool:
        try:
            return list(pool.map(one, plans, begins))
        except BaseException:
            for server in chain(*alike.values()):
                kill_session(server.leader)  # the kernel kills its forks with it
            raise
