"""Protocols for the data that generated modules are read from: a recording, or one compile while it is being folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from dynadiag.recording.records import Event, Graph, Kernel, Node, Run, Symbol

__all__ = ["CompileReader", "RecordingReader"]


class CompileReader(Protocol):
    """The graphs, nodes, kernels and events of one compile or of a whole recording."""

    def graphs(self) -> tuple[Graph, ...]: ...
    def nodes(self, graph: int) -> tuple[Node, ...]: ...
    def kernels(self) -> tuple[Kernel, ...]: ...
    def events(self, kind: str | None = None, name: str | None = None) -> Iterator[Event]: ...
    def event(self, index: int) -> Event: ...
    def payload(self, event: int) -> str: ...


class RecordingReader(CompileReader, Protocol):
    """A whole recording: adds what is known at the end of the run, such as sizes of symbols and the device."""

    @property
    def run(self) -> Run: ...
    def symbols(self) -> tuple[Symbol, ...]: ...
    def metadata(self, event: int) -> Mapping[str, Any]: ...
