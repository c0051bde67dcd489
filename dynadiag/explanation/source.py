"""What an explanation is made of: the part of a recording that it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from dynadiag.recording.package_files import PackageFiles
from dynadiag.recording.records import (
    Break,
    CacheLookup,
    Compile,
    Event,
    Graph,
    Guard,
    Kernel,
    Node,
    Recompile,
    Run,
    SkippedFrame,
    Symbol,
)

T = TypeVar("T")


class ExplainedRecording(Protocol):
    """A recording, as far as explaining needs one; tests build theirs by hand."""

    @property
    def run(self) -> Run: ...
    def compiles(self) -> tuple[Compile, ...]: ...
    def breaks(self) -> tuple[Break, ...]: ...
    def recompiles(self) -> tuple[Recompile, ...]: ...
    def skipped(self) -> tuple[SkippedFrame, ...]: ...
    def graphs(self, compile_id: str | None = None) -> tuple[Graph, ...]: ...
    def lowered(self) -> Collection[str]: ...
    def guards(self, compile_id: str | None = None) -> tuple[Guard, ...]: ...
    def nodes(self, graph: int) -> tuple[Node, ...]: ...
    def symbols(self) -> tuple[Symbol, ...]: ...
    def kernels(self) -> tuple[Kernel, ...]: ...
    def cache_lookups(self) -> tuple[CacheLookup, ...]: ...
    def source_files(self) -> tuple[str, ...]: ...
    def source(self, file: str) -> str | None: ...
    def records(self, record: type[T]) -> tuple[T, ...]: ...
    def counts(self) -> dict[str, int]: ...
    def events(self, kind: str | None = None, *, compile_id: str | None = None) -> Iterable[Event]: ...
    def metadata(self, event: int) -> dict[str, Any]: ...
    def payload(self, event: int) -> str: ...


def event_data(recording: ExplainedRecording, kind: str) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield the events of a kind in log order, each with the object that its header has under the kind's name.

    Events without such an object are left out: a recording may be damaged, or a stranger's.
    """
    for event in recording.events(kind):
        data = recording.metadata(event.index).get(kind)
        if isinstance(data, dict):
            yield event, data


def first_event_data(recording: ExplainedRecording, kind: str) -> dict[str, Any]:
    """Return what the first of the events of a kind says. Empty if there is none."""
    return next((data for _, data in event_data(recording, kind)), {})


def first_payload(recording: ExplainedRecording, kind: str, form: type[T]) -> T | None:
    """Return the payload of the first event of a kind. None where there is none, or none that can be read."""
    for event in recording.events(kind):
        try:
            return msgspec.json.decode(recording.payload(event.index), type=form)
        except msgspec.MsgspecError:  # a damaged event, or one of another version
            return None
    return None


def package_files(recording: ExplainedRecording) -> PackageFiles:
    """Return the files of packages, as the recorder found them; of a log made without it, what paths say."""
    found = (data.items() for _, data in event_data(recording, "dynadiag_packages"))
    return PackageFiles({file: inside for each in found for file, inside in each if isinstance(inside, str)})


def recorded_variables(recording: ExplainedRecording) -> dict[str, str] | None:
    """Return the environment variables that were recorded, or None for a log made without our recorder."""
    values = first_event_data(recording, "dynadiag_run").get("environment")
    return {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else None
