"""From events to typed records: what each event of the trace means.

A `Digest` reads events in the order of the log and yields records as soon as they are complete, so that memory does not
grow with the log. Events of ours (``dynadiag_*``) stand just before the event of torch's that they add to; where they
are missing, as in a log made with ``TORCH_TRACE``, torch's own text is read instead and what it lacks is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dynadiag.recording.digest import breaks, graphs, guards, kernels, recompiles, skips, symbols
from dynadiag.recording.digest.compiles import Compiles
from dynadiag.recording.digest.context import Context, Record
from dynadiag.recording.digest.runs import Runs
from dynadiag.recording.records import Event

__all__ = ["Digest", "Record"]

Payload = Callable[[], str]
Reader = Callable[[Context, Event, dict[str, Any], Payload], Iterator[Record]]

_READERS: dict[str, Reader] = {
    "dynamo_graph_break_reason": breaks.read,
    "dynamo_error": breaks.read_error,
    "dynamo_cpp_guards_str": guards.read,
    "recompile_reasons": recompiles.read,
    "inductor_output_code": kernels.read,
    "create_symbol": symbols.read,
    "create_unbacked_symbol": symbols.read,
    "guard_added_fast": symbols.read,
    "symbolic_shape_specialization": symbols.read,
}
# The events that a compile begins with: where its id has been used, the program has reset torch.
_BEGINNINGS = ("recompile_reasons", "dynadiag_recompile", "dynamo_start", "dynadiag_frame")


class Digest:
    """Reads one log. ``event`` once for each event in order, then ``finish``."""

    def __init__(self) -> None:
        self._context = Context()
        self._compiles = Compiles(self._context)
        self._runs = Runs(self._context)

    def event(self, event: Event, metadata: dict[str, Any], payload: Payload) -> Iterator[Record]:
        """The records that this event completes. ``payload`` is called only where the text is needed."""
        name = event.name if event.kind == "artifact" and event.name else event.kind
        if name in _BEGINNINGS and self._compiles.over(self._context.unique(event.compile_id)):
            self._context.give_out_again(event.compile_id)
        event = replace(event, compile_id=self._context.unique(event.compile_id))
        if event.kind == "str":
            self._context.intern(metadata.get("str"))
        elif event.kind.startswith("dynadiag_"):
            yield from self._ours(event, metadata, payload)
        elif graphs.stage_of(name) is not None:
            yield from graphs.read(self._context, event, name, payload)
        elif name in _READERS:
            yield from _READERS[name](self._context, event, metadata, payload)
        self._runs.event(name, metadata, payload)
        yield from self._compiles.event(name, event, metadata)

    def _ours(self, event: Event, metadata: dict[str, Any], payload: Payload) -> Iterator[Record]:
        data = metadata.get(event.kind)
        if not isinstance(data, dict):
            return
        kind = event.kind.removeprefix("dynadiag_")
        if kind == "source":
            yield from self._context.source(data, event.index)
        elif kind == "trial":
            yield from self._context.trial(data)
        elif kind == "skipped":
            frame = skips.read(data)
            if not self._compiles.traced(frame):
                yield frame
        elif kind == "raised":
            yield from breaks.read_raised(self._context, data)
        elif kind == "refused":
            self._context.note("recompile", event.compile_id, data)
            yield from recompiles.read(self._context, event, metadata, payload)
        elif kind == "graph":
            self._context.note("graph", event.compile_id, payload())
        else:
            self._context.note(kind, event.compile_id, data)

    def finish(self) -> Iterator[Record]:
        """The records that only the end of the log completes: compiles, recompiles, the run."""
        yield from self._compiles.finish()
        yield self._runs.finish()
