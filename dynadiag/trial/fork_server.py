"""The supervisor's end of a fork server: a process that forks a trial for each request, and replicas of it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from queue import SimpleQueue
from typing import TypeVar

from dynadiag.trial import zygote
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.supervise import kill_session, session_memory
from dynadiag.trial.zygote import ForkReply, ForkRequest


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
        for replica in self.replicas:
            replica.stop()
        self.channel.close()
        kill_session(self.leader)
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)

    def wait_until_ready(self, seconds: float) -> ForkReply:
        """Wait for its answer: ready, or the reason why not. The reply is empty if none comes within ``seconds``."""
        self.channel.settimeout(seconds)
        try:
            return zygote.receive(self.channel, ForkReply)[0] or ForkReply()
        except TimeoutError:
            return ForkReply()
        finally:
            self.channel.settimeout(None)

    def expect_pid(self) -> int:
        """The process id of the fork that was asked for. Raises `EOFError` if the process is gone."""
        return self._expect(lambda reply: reply.pid)

    def expect_exit_code(self) -> int:
        """The exit code of the fork, once it has ended. Raises `EOFError` if the process is gone."""
        return self._expect(lambda reply: reply.exit_code)

    def _expect(self, field: Callable[[ForkReply], int | None]) -> int:
        reply = zygote.receive(self.channel, ForkReply)[0]
        value = field(reply) if reply is not None else None
        if value is None:
            raise EOFError("the fork server ended")
        return value

    def with_replicas(self, count: int) -> list[ForkServer]:
        """``count`` fork servers in the same state, this one first. Raises `OSError` or `EOFError` if it is gone."""
        while len(self.replicas) < count - 1:
            self.replicas.append(self._fork(ForkRequest(replica=True)))
        return [self, *self.replicas[: count - 1]]

    def with_imports(self, imports: Sequence[str]) -> ForkServer:
        """A replica that has run these import statements. Raises `OSError` or `EOFError` if this one is gone."""
        return self._fork(ForkRequest(replica=True, imports=tuple(imports)))

    def checkpoint(self, request: ForkRequest) -> ForkServer:
        """A fork that runs the program with the plan of ``request`` and stops at the next point where trials can be
        forked.
        """
        nowhere = os.open(os.devnull, os.O_WRONLY)  # its output and its events
        try:
            return self._fork(replace(request, checkpoint=True), nowhere, nowhere)
        finally:
            os.close(nowhere)

    def _fork(self, message: ForkRequest, *descriptors: int) -> ForkServer:
        """A fork that is a fork server too, with its own channel. Raises `OSError` or `EOFError` if this one is
        gone.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            zygote.send(self.channel, message, [*descriptors, theirs.fileno()])
        return ForkServer(ours, self.expect_pid())


WorkT = TypeVar("WorkT")  # what a trial is given: its plan, or its program
_MAX_MEMORY_GROWTH = 3  # a trial may use up to this many times the memory of the stopped program


def parallel_forks(leader: int, memory: int, jobs: int) -> int:
    """How many forks of a session may run at once: at most ``jobs``, and only as many as fit into ``memory`` bytes."""
    return max(1, min(jobs, memory // (_MAX_MEMORY_GROWTH * max(1, session_memory(leader)))))


def run_parallel(
    trial: Callable[[ForkServer, WorkT], Outcome],
    works: Sequence[WorkT],
    servers: Sequence[ForkServer],
    max_parallel: int,
) -> list[Outcome]:
    """The outcomes of ``works``, in their order, with at most ``max_parallel`` running at a time.

    ``servers`` has the fork server of each. A server that several trials share gets as many replicas as it needs.
    On Ctrl-C, or when a trial raises, all servers are killed with everything that runs in them, and the exception is
    raised.
    """
    ids = [id(server) for server in servers]
    replicas = {id(server): server.with_replicas(min(max_parallel, ids.count(id(server)))) for server in servers}
    free: dict[int, SimpleQueue[ForkServer]] = {number: SimpleQueue() for number in replicas}
    for number, alike in replicas.items():
        for server in alike:
            free[number].put(server)

    def run(work: WorkT, number: int) -> Outcome:
        server = free[number].get()
        try:
            return trial(server, work)
        finally:
            free[number].put(server)

    with ThreadPoolExecutor(max_parallel) as pool:
        try:
            return list(pool.map(run, works, ids))
        except BaseException:
            for server in chain(*replicas.values()):
                kill_session(server.leader)  # the kernel kills its forks with it
            raise
