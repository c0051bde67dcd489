"""The supervisor's end of a fork server: a process that forks a trial for each request."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.trial import zygote
from dynadiag.trial.plan import Plan
from dynadiag.trial.supervise import kill_session

__all__ = ["ForkServer"]


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
