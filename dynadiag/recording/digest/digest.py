"""The digest of a log: each event goes to the reader of its kind.

A `Digest` reads events in log order and yields records as soon as they are complete, so that memory does not grow with
the log. Our own events (``dynadiag_*``) come just before the torch event that they add to. When they are missing, as in
a log made with ``TORCH_TRACE``, torch's own text is parsed, and what it lacks is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dynadiag.recording.digest import breaks, graphs, guards, recompiles
from dynadiag.recording.digest.caches import CacheCollector
from dynadiag.recording.digest.compiles import CompileCollector, read_skipped_frame
from dynadiag.recording.digest.context import DigestContext, Payload, Reader
from dynadiag.recording.digest.runs import RunCollector, read_collective, read_values
from dynadiag.recording.records import Event, Record, Run

# To read another artifact, add its reader to one of these modules, its record to `recording.records` and its table to
# `recording.schema`. `Recording.records` then returns the records.
_READERS: dict[str, Reader] = {**breaks.READERS, **graphs.READERS, **guards.READERS, **recompiles.READERS}
# The events that a compile can begin with. If its id is already used, the program has reset torch.
_COMPILE_STARTS = ("recompile_reasons", "dynadiag_recompile", "dynamo_start", "dynadiag_frame")


class Digest:
    """Reads one log. Call `event` for each event in order, then `finish`."""

    def __init__(self) -> None:
        self._context = DigestContext()
        self._compiles = CompileCollector(self._context)
        self._caches = CacheCollector(self._context)
        self._runs = RunCollector(self._context)

    def event(self, event: Event, metadata: dict[str, Any], payload: Payload) -> Iterator[Record]:
        """Yield the records that this event completes. `payload` is only called when the text is needed."""
        name = event.name if event.kind == "artifact" and event.name else event.kind
        if name in _COMPILE_STARTS and self._compiles.is_measured(self._context.unique_id(event.compile_id)):
            self._context.reuse_id(event.compile_id)
        event = replace(event, compile_id=self._context.unique_id(event.compile_id))
        if event.kind == "str":
            self._context.intern(metadata.get("str"))
        elif event.kind.startswith("dynadiag_"):
            yield from self._own_event(event, metadata, payload)
        elif graphs.stage_of(name) is not None:
            yield from graphs.read_graph(self._context, event, name, payload)
        elif name in _READERS:
            yield from _READERS[name](self._context, event, metadata, payload)
        self._runs.event(name, metadata, payload)
        self._compiles.event(name, event, metadata)
        yield from self._caches.event(name, event, metadata, payload)

    def _own_event(self, event: Event, metadata: dict[str, Any], payload: Payload) -> Iterator[Record]:
        """Yield the records of one of our own events."""
        data = metadata.get(event.kind)
        if not isinstance(data, dict):
            return
        kind = event.kind.removeprefix("dynadiag_")
        if kind == "source":
            yield from self._context.source(data, event.index)
        elif kind == "trial":
            yield from self._context.trial(data)
        elif kind == "collective":
            yield read_collective(self._context, data, self._compiles.begun)
        elif kind == "skipped":
            frame = read_skipped_frame(data)
            if data.get("modes") or not self._compiles.was_traced(frame):  # a mode ends what was compiled before it
                yield frame
        elif kind == "export":
            yield from breaks.read_export(self._context, data)
        elif kind == "values":
            yield from read_values(self._context, event.compile_id, data, payload)
        elif kind == "raised":
            yield from breaks.read_raised_break(self._context, data)
        elif kind == "refused":
            self._context.hold("recompile", event.compile_id, data)
            yield from recompiles.read_reasons(self._context, event, metadata, payload)
        elif kind == "graph":
            self._context.hold("graph", event.compile_id, payload())
        elif kind == "failed_trace":
            yield from graphs.read_graph(self._context, event, event.kind, payload)
        else:
            self._context.hold(kind, event.compile_id, data)

    def finish(self) -> Iterator[Record]:
        """Yield the records that the end of the log completes: compiles, recompiles, cache lookups."""
        yield from self._compiles.finish()
        yield from self._caches.finish()

    def run(self) -> Run:
        """Return the process that was recorded. Call it last."""
        return self._runs.finish()
