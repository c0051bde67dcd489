"""The event stream from a trial's process to its supervisor: JSON, one object per line, over a pipe.

Each line is written at once, because the process may die at the next instruction. It is never pickle: what comes out of
a crashing process is not trusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

__all__ = ["EventWriter", "parse_events"]


class EventWriter:
    """The write end of the stream."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        """A path by which another process of this user can open the stream while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def send(self, event: str, **data: Any) -> None:
        """Write one event."""
        line = json.dumps({"event": event, **data}, default=str) + "\n"
        payload = memoryview(line.encode("utf-8", "backslashreplace"))
        while payload:
            payload = payload[os.write(self._descriptor, payload) :]


def parse_events(data: bytes) -> Iterator[dict[str, Any]]:
    """The events in the bytes that were read. A line that a crash cut short is left out."""
    for line in data.split(b"\n"):
        try:
            item = json.loads(line) if line else None
        except ValueError:
            continue
        if isinstance(item, dict):
            yield item
