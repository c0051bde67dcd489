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
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            zygote.send(self.channel, {"twin": True}, [theirs.fileno()])
            theirs.close()
            self.twins.append(Server(ours, int(self.expect("pid"))))
        return [self, *self.twins[: count - 1]]

    @classmethod
    def checkpoint(cls, parent: Server, scratch: Path, request: dict[str, Any], plan: Plan) -> Server:
        """A fork of ``parent`` that goes on with the program by ``plan`` and stops at the next place to fork from."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        report = os.open(os.devnull, os.O_WRONLY)
        output = os.open(os.devnull, os.O_WRONLY)
        message = {**request, "plan": plan.to_json(), "scratch": str(scratch), "checkpoint": True}
        zygote.send(parent.channel, message, [output, report, theirs.fileno()])
        theirs.close()
        os.close(report)
        os.close(output)
        return cls(ours, int(parent.expect("pid")))
