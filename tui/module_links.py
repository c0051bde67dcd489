"""The links of generated code, from `dynadiag.kernels`.

Only one compile is read, because a recording may have thousands.
"""

from __future__ import annotations

from collections.abc import Iterator

from dynadiag.kernels import GeneratedModule, KernelCall, generated_modules, source_lines_of
from dynadiag.recording.records import Event, Graph, Kernel, Node, Run, Symbol
from tui.line_links import LineKey, LineLinks, invert_links
from tui.session import Session

__all__ = ["compile_calls", "module_links"]


def module_links(session: Session, compile_id: str) -> tuple[dict[str, LineLinks], dict[str, str]]:
    """Return the links of each generated module, and the graph that it was made of, both by document key."""
    found = _units(session, compile_id)
    graphs = {f"event:{unit.event}": f"event:{unit.graph_event}" for unit in found if unit.graph_event is not None}
    return {f"event:{unit.event}": _links(unit) for unit in found}, graphs


def compile_calls(session: Session, compile_id: str) -> tuple[KernelCall, ...]:
    """Return the kernel calls in the generated code of a compile."""
    return tuple(call for unit in _units(session, compile_id) for call in unit.calls)


def _units(session: Session, compile_id: str) -> tuple[GeneratedModule, ...]:
    return generated_modules(_CompileRecording(session, compile_id))


def _links(unit: GeneratedModule) -> LineLinks:
    places: dict[int, frozenset[LineKey]] = {}
    guessed: set[int] = set()
    for call in unit.calls:
        own = frozenset((place.file, place.line) for place in call.source_lines or call.view_lines)
        if not own:
            continue
        for line in _call_lines(call):
            places[line] = places.get(line, frozenset()) | own
            if call.evidence == "dataflow":
                guessed.add(line)
    return invert_links({**places, **_exact_keys(unit)}, frozenset(guessed))


def _exact_keys(unit: GeneratedModule) -> dict[int, frozenset[LineKey]]:
    """Return the source lines of kernel lines that belong to known nodes."""
    found: dict[int, frozenset[LineKey]] = {}
    for line in [line for call in unit.calls for line in call.statements]:
        own = frozenset((place.file, place.line) for place in source_lines_of(unit, line.nodes))
        if own:
            found[line.line - 1] = found.get(line.line - 1, frozenset()) | own
    return found


def _call_lines(call: KernelCall) -> Iterator[int]:
    """Yield the lines (from 0) of a call: the call, and the kernel that it calls."""
    yield call.line - 1
    if call.definition is not None:
        yield call.definition.line - 1
        yield from range(call.definition.first_line - 1, call.definition.last_line)


class _CompileRecording:
    """A recording reduced to one compile, as `units` reads it."""

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
