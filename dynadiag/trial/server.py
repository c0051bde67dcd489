"""The other end of a process that forks trials."""

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

__all__ = ["Server"]


@dataclass(slots=True)
class Server:
    """A process that forks trials: the zygote, or the program stopped at its first compiled call or graph."""

    channel: socket.socket
    leader: int
    process: subprocess.Popen[bytes] | None = None
    twins: list[Server] = field(default_factory=list)

    def stop(self) -> None:
        """Ends it, with all that it forked."""
        for twin in self.twins:
            twin.stop()
        self.channel.close()
        kill_session(self.leader)
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)

    def wait(self, seconds: float) -> dict[str, Any]:
        """What it says next; nothing where that is not said in time, or it is gone."""
        self.channel.settimeout(seconds)
        try:
            return zygote.receive(self.channel)[0]
        except TimeoutError:
            return {}
        finally:
            self.channel.settimeout(None)

    def expect(self, key: str) -> Any:
        """What it answers. Raises `EOFError` where it is gone."""
        answer = zygote.receive(self.channel)[0]
        if key not in answer:
            raise EOFError("it ended unexpectedly")
        return answer[key]

    def with_twins(self, count: int) -> list[Server]:
        """``count`` processes that stand at one place, this one first. Raises `OSError` or `EOFError` if it is gone."""
        while len(self.twins) < count - 1:
            self.twins.append(self._forked({"twin": True}))
        return [self, *self.twins[: count - 1]]

    def checkpoint(self, scratch: Path, request: dict[str, Any], plan: Plan) -> Server:
        """A fork that goes on with the program by ``plan`` and stops at the next place to fork from."""
        message = {**request, "plan": plan.to_json(), "scratch": str(scratch), "checkpoint": True}
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what it prints, and for what it tells of itself
        try:
            return self._forked(message, nowhere, nowhere)
        finally:
            os.close(nowhere)

    def _forked(self, message: dict[str, Any], *descriptors: int) -> Server:
        """A fork that serves in its turn, on a channel of its own. Raises `OSError` or `EOFError` if this is gone."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            zygote.send(self.channel, message, [*descriptors, theirs.fileno()])
        return Server(ours, int(self.expect("pid")))
