"""CUDA graphs: which compiled code was recorded as one, which was recorded again, and which was left without, and why.

The trace tells of them in two places. A compile's metrics have the reason for which Inductor made no CUDA graph of its
code (``cudagraph_skip_reason``, the last where there were several). Each recording is timed, while the program runs,
in ``chromium_event``s named ``CUDAGraphNode.record``. What torch decides while the program runs (code that was recorded
too often, inputs that it found mutated) it only writes to a logger; our recorder listens to that one as well
(``dynadiag_cuda_graph_skip``). Seen in torch 2.11, 2.13 and 2.15; why code is recorded again no event says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dynadiag.explanation.source import ExplainedRecording, event_data
from dynadiag.recording.json_values import float_or_none, json_object
from dynadiag.recording.records import Event
from dynadiag.recording.torch_text.reasons import read_cudagraph_skip

__all__ = ["CUDA_GRAPH_EVENTS", "CudaGraph", "read_cuda_graphs"]

SKIP = "dynadiag_cuda_graph_skip"  # the kind of the recorder's event
_METRICS = {"compilation_metrics": False, "bwd_compilation_metrics": True}  # kind -> whether it is of backward code
_RECORDED = "CUDAGraphNode.record"
CUDA_GRAPH_EVENTS = (SKIP, *_METRICS, "chromium_event")  # the kinds that are read
_OUTSIDE = "-"  # compile id of what happens while the program runs


@dataclass(frozen=True, slots=True)
class CudaGraph:
    """``what`` is "recorded", "re-recorded" (the same code once more: other sizes, other addresses, another way
    through the program) or "skipped".

    ``compile_id`` is "-" where torch did not say which code it was, ``backward`` None where it did not say of which
    kind. ``seconds`` is what recording took. The place is the user's line that torch names in its reason.
    """

    compile_id: str
    what: str
    backward: bool | None = None
    reason: str | None = None
    file: str | None = None
    line: int | None = None
    seconds: float | None = None


def read_cuda_graphs(recording: ExplainedRecording) -> tuple[CudaGraph, ...]:
    """What a recording has on CUDA graphs: the skipped ones, then the recorded ones in their order."""
    told = [_skipped(event, data) for event, data in event_data(recording, SKIP)]
    known = {(item.compile_id, item.reason) for item in told}
    measured = [item for kind in _METRICS for item in _measured(recording, kind)]
    skipped = [*told, *(item for item in measured if (item.compile_id, item.reason) not in known)]
    return (*dict.fromkeys(skipped), *_recordings(recording))


def _measured(recording: ExplainedRecording, kind: str) -> Iterator[CudaGraph]:
    for event, data in event_data(recording, kind):
        if data.get("cudagraph_skip_reason"):
            yield _with_reason(event.compile_id, str(data["cudagraph_skip_reason"]), backward=_METRICS[kind])


def _skipped(event: Event, data: Mapping[str, Any]) -> CudaGraph:
    named = data.get("compile_id")
    return _with_reason(named if isinstance(named, str) else event.compile_id, str(data.get("reason")), backward=None)


def _with_reason(compile_id: str, reason: str, *, backward: bool | None) -> CudaGraph:
    short, at = read_cudagraph_skip(reason)
    return CudaGraph(compile_id, "skipped", backward, short, at.file, at.line)


def _recordings(recording: ExplainedRecording) -> Iterator[CudaGraph]:
    """Each recording of compiled code. Those happen while the program runs: their events stand outside any compile."""
    began: float | None = None
    met: set[tuple[str, bool | None]] = set()
    for event in recording.events("chromium_event", compile_id=_OUTSIDE):
        text = recording.payload(event.index)
        data = json_object(text) if _RECORDED in text else {}
        if data.get("name") != _RECORDED:
            continue
        if data.get("ph") == "B":
            began = float_or_none(data.get("ts"))
        elif data.get("ph") == "E":
            made = _recorded(data, began)
            code = (made.compile_id, made.backward)
            yield replace(made, what="re-recorded") if code in met else made
            met.add(code)
            began = None


def _recorded(data: Mapping[str, Any], began: float | None) -> CudaGraph:
    arguments = data.get("args")
    told = arguments if isinstance(arguments, dict) else {}
    named, backward, ended = told.get("compile_id"), told.get("is_backward"), float_or_none(data.get("ts"))
    seconds = None if began is None or ended is None else max(0.0, ended - began) / 1e6  # torch counts microseconds
    return CudaGraph(
        named if isinstance(named, str) and named != "None" else _OUTSIDE,
        "recorded",
        backward if isinstance(backward, bool) else None,
        seconds=seconds,
    )
