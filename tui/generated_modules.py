"""The generated modules of one compile, from `dynadiag.kernels`. A recording may have thousands of compiles."""

from __future__ import annotations

from collections.abc import Iterator

from dynadiag.kernels.generated_module import GeneratedModule, KernelCall
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.recording.records import Event, Graph, Kernel, Node, Run, Symbol
from tui.session import Session

__all__ = ["compile_calls", "compile_modules"]


def compile_calls(session: Session, compile_id: str) -> tuple[KernelCall, ...]:
    """Return the kernel calls in the generated code of a compile."""
    return tuple(call for module in compile_modules(session, compile_id) for call in module.calls)


def compile_modules(session: Session, compile_id: str) -> tuple[GeneratedModule, ...]:
    """Return the generated modules of a compile."""
    return generated_modules(_CompileRecording(session, compile_id))


class _CompileRecording:
    """A recording reduced to one compile, as `generated_modules` reads it."""

    def __init__(self, session: Session, compile_id: str) -> None:
        self._session, self._id = session, compile_id
        self._recording = session.recording

    @property
    def run(self) -> Run:
        return self._recording.run

    def graphs(self) -> tuple[Graph, ...]:
        return self._session.graphs(self._id)

    def nodes(self, graph: int) -> tuple[Node, ...]:
        return self._recording.nodes(graph)

    def kernels(self) -> tuple[Kernel, ...]:
        return self._session.kernels(self._id)

    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(item for item in self._session.explanation().symbols if item.compile_id == self._id)

    def events(self, kind: str | None = None, name: str | None = None) -> Iterator[Event]:
        found = list(self._recording.events(kind, name, self._id))
        return iter(self._session.count_rows(found))

    def event(self, index: int) -> Event:
        return self._recording.event(index)

    def payload(self, event: int) -> str:
        return self._session.payload(event)

    def metadata(self, event: int) -> dict[str, object]:
        return self._recording.metadata(event)
