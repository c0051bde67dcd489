"""How a trial's process tells its supervisor what it saw: JSON, one object a line, over a pipe.

A line is written as soon as something is known, because the process may die at the next instruction. Never
pickle: what comes out of a crashing process is not trusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

__all__ = ["Reporter", "lines"]


class Reporter:
    """The writing end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        """Where another process of this user's can open it, while this one lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def send(self, event: str, **data: Any) -> None:
        line = json.dumps({"event": event, **data}, default=str) + "\n"
        payload = memoryview(line.encode("utf-8", "backslashreplace"))
        while payload:
            payload = payload[os.write(self._descriptor, payload) :]


def lines(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects in what was read. A line cut short by a crash is left out: its writer was killed writing it."""
    for line in data.split(b"\n"):
        try:
            item = json.loads(line) if line else None
        except ValueError:
            continue
        if isinstance(item, dict):
            yield item
