"""What units are read from: a recording, one compile of it, or what has come of it while it is folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from dynadiag.recording.records import Event, Graph, Kernel, Node, Run, Symbol

__all__ = ["Known", "Recorded"]


class Known(Protocol):
    """Of one compile, what its graphs are linked by."""

    def graphs(self) -> tuple[Graph, ...]: ...
    def nodes(self, graph: int) -> tuple[Node, ...]: ...
    def kernels(self) -> tuple[Kernel, ...]: ...
    def events(self, kind: str | None = None, name: str | None = None) -> Iterator[Event]: ...
    def event(self, index: int) -> Event: ...
    def payload(self, event: int) -> str: ...


class Recorded(Known, Protocol):
    """With what the end of a run adds: the sizes that symbols had, the device, what was built."""

    @property
    def run(self) -> Run: ...
    def symbols(self) -> tuple[Symbol, ...]: ...
    def metadata(self, event: int) -> Mapping[str, Any]: ...
