"""What the program did around its compiles: the run itself, its collectives, and the values of compiled calls.

The run is known from what the recorder wrote at its beginning and end, or from what a log of torch alone says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dynadiag.recording.digest.context import METRICS_KINDS, DigestContext, Payload
from dynadiag.recording.digest.graphs import innermost_user_span
from dynadiag.recording.json_values import float_or_none, int_or_none, json_object, list_or_empty, text_or_none
from dynadiag.recording.records import (
    CUT_SHORT,
    FULL,
    Collective,
    NodeFacts,
    NodeValue,
    Run,
    StoredNodeValue,
    ValuesCall,
    ValueSummary,
    signal_note,
)

_FOREIGN = "imported from a TORCH_TRACE log: columns, the values in failing guards and graphs as data are not in it"


_READ = {  # a probe -> what it reads
    "dynamo_start": "the source of compiled functions",
    "dynamo_graph_break_reason": "columns of graph breaks",
    "dynamo_error": "columns of failed compiles",
    "dynamo_output_graph": "graphs as data",
    "dynamo_cpp_guards_str": "lines of guards",
    "recompile_reasons": "new values of failed guards",
}


_LEFT_BY_STANCE = {  # a stance -> the calls that torch leaves to Python without an event
    "eager_on_recompile": "calls that fit nothing compiled before it was set ran in Python, which torch does not "
    "report. Make such calls before it is set, or let their sizes be dynamic from the first call on",
    "force_eager": "every call of a compiled function ran in Python from then on",
}


class RunCollector:
    """Collects what is known about the process."""

    def __init__(self, context: DigestContext) -> None:
        self._context = context
        self._torch: str | None = None
        self._rank: int | None = None
        self._missed: dict[str, str] = {}
        self._full = False

    def event(self, name: str, metadata: dict[str, Any], payload: Payload) -> None:
        """Add what one event says about the process."""
        if self._rank is None:
            self._rank = int_or_none(metadata.get("rank"))
        if name == "torch_version":
            self._torch = text_or_none(json_object(payload()).get("pytorch_version"))
        elif name in METRICS_KINDS and self._torch is None and isinstance(data := metadata.get(name), dict):
            self._torch = text_or_none(data.get("pytorch_version"))  # logs of torch 2.11 have no other version
        elif name == "dynadiag_missed" and isinstance(data := metadata.get(name), dict):
            self._missed.setdefault(str(data.get("probe")), str(data.get("error")))
        elif name == "dynadiag_limit":
            self._full = True

    def finish(self) -> Run:
        """Return the run.

        ``exit_code`` is from the last ``dynadiag_exit``, written by the process that saw the program end.
        """
        start: dict[str, Any] = self._context.take("run", "-") or {}
        end: dict[str, Any] = self._context.take("end", "-") or {}
        exit_event: dict[str, Any] = self._context.take("exit", "-") or {}
        complete = bool(end) or "code" in exit_event
        return Run(
            target=str(start.get("target") or "?"),
            argv=tuple(map(str, list_or_empty(start.get("argv")))),
            cwd=text_or_none(start.get("cwd")),
            torch=text_or_none(start.get("torch")) or self._torch,
            python=text_or_none(start.get("python")),
            triton=text_or_none(start.get("triton")),
            device=text_or_none(end.get("device")),
            rank=self._rank if self._rank is not None else int_or_none(start.get("rank")),
            pid=int_or_none(start.get("pid")),
            started=float_or_none(start.get("started")),
            seconds=float_or_none(end.get("seconds")) or float_or_none(exit_event.get("seconds")),
            exit_code=int_or_none(exit_event.get("code")),
            complete=complete,
            notes=tuple(self._notes(end, foreign=not start, complete=complete, exit_event=exit_event)),
        )

    def _notes(self, end: dict[str, Any], *, foreign: bool, complete: bool, exit_event: dict[str, Any]) -> list[str]:
        notes = [_FOREIGN] if foreign else []
        code = int_or_none(exit_event.get("code"))
        if not foreign and not complete:
            notes.append(CUT_SHORT)
        elif code is not None and code < 0:
            notes.append(signal_note(code))
        if self._full:
            notes.append(FULL)
        if (left := _LEFT_BY_STANCE.get(str(end.get("stance")))) is not None:
            notes.append(f'`torch.compiler.set_stance("{end["stance"]}")` held at the end: {left}')
        stopped = self._context.take("stopped", "-")
        if stopped is not None:
            calls, seconds = int_or_none(stopped.get("calls")), float_or_none(stopped.get("seconds"))
            notes.append(
                f"ended by --stop-after {calls}: the program was ended at its next call of a compiled function"
                if seconds is None
                else f"ended by --seconds {seconds:g}: this is what was recorded until then"
            )
        unread = [_READ[probe] for probe, error in self._missed.items() if probe in _READ and _is_renamed(error)]
        if unread:
            notes.append(
                f"this torch does not show the recorder all that it reads: {'; '.join(unread)} are not recorded"
            )
        for probe, error in self._missed.items():
            if probe in _READ and _is_renamed(error):
                continue
            if probe == "journal":
                notes.append(f"{error}: it was opened again, and what was compiled meanwhile may be missing")
            else:
                notes.append(f"the recorder could not record all of {probe}: {error}")
        return notes + [str(note) for note in list_or_empty(exit_event.get("notes"))]


def _is_renamed(error: str) -> bool:
    """Whether a probe failed because torch has not what it reads."""
    return error.startswith("LookupError: ")


# The methods of ProcessGroup -> the function of torch.distributed that users call.
_FUNCTIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather_coalesced",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "recv_anysource": "recv",
}
_MAX_SIZES = 1000  # characters


def read_collective(context: DigestContext, data: dict[str, Any], compiles: int) -> Collective:
    """Return the collective of one event, after so many compiles."""
    op = str(data.get("op", "?"))
    sizes, dtypes = data.get("sizes"), data.get("dtypes")
    return Collective(
        index=context.next_index("collective"),
        op=_FUNCTIONS.get(op, op),
        group=str(data.get("group", "?")),
        number=int_or_none(data.get("number")) or 0,
        sizes=" ".join(map(_size, sizes))[:_MAX_SIZES] if isinstance(sizes, list) else "",
        dtypes=" ".join(map(str, dtypes))[:_MAX_SIZES] if isinstance(dtypes, list) else "",
        peer=int_or_none(data.get("peer")),
        is_async=bool(data.get("async")),
        at=float_or_none(data.get("at")),
        file=text_or_none(data.get("file")),
        line=int_or_none(data.get("line")),
        function=text_or_none(data.get("function")),
        stance=text_or_none(data.get("stance")),
        compiles=compiles,
    )


def _size(size: Any) -> str:
    return f"({', '.join(map(str, size))}{',' if len(size) == 1 else ''})" if isinstance(size, list) else "?"


_GRAPHS = ("forward", "backward", "inference")


def read_values(
    context: DigestContext, compile_id: str, data: dict[str, Any], payload: Payload
) -> Iterator[ValuesCall | NodeFacts | NodeValue | StoredNodeValue]:
    """Yield the records of one call."""
    graph = data.get("graph")
    described = json_object(payload())
    notes = [*list_or_empty(described.get("notes")), *([data["note"]] if "note" in data else ())]
    call = ValuesCall(
        index=context.next_index("values_call"),
        compile_id=compile_id,
        graph=graph if graph in _GRAPHS else "forward",
        call=int_or_none(data.get("call")) or 0,
        seed=text_or_none(data.get("seed")),
        seconds=_finite(data.get("seconds")),
        notes=tuple(map(str, notes)),
    )
    yield call
    stacks = list_or_empty(described.get("stacks"))
    for node in list_or_empty(described.get("nodes")):
        if isinstance(node, dict):
            yield from _read_node(context, call.index, node, stacks)


def _read_node(
    context: DigestContext, call: int, node: dict[str, Any], stacks: list[Any]
) -> Iterator[NodeFacts | NodeValue | StoredNodeValue]:
    index = context.next_index("node_value")
    yield NodeValue(
        index=index,
        values_call=call,
        node=str(node.get("node")),
        op=str(node.get("op")),
        inputs=tuple(map(str, list_or_empty(node.get("inputs")))),
        span=innermost_user_span(node.get("stack"), stacks),
        summary=read_summary(node),
        off_float64=_finite(node.get("off_float64")),
        cause=text_or_none(node.get("cause")),
    )
    if isinstance(stored := node.get("stored"), dict):
        off = _finite(stored.get("off"))
        kernel = text_or_none(stored.get("kernel"))
        yield StoredNodeValue(index, kernel, off, stored.get("wrong") is True, read_summary(stored))
    if not node.keys().isdisjoint(("reaches", "moved", "writes", "gradient_of")):
        yield NodeFacts(
            index=index,
            reaches=reaches if isinstance(reaches := node.get("reaches"), bool) else None,
            moved=_finite(node.get("moved")),
            writes=text_or_none(node.get("writes")),
            gradient_of=text_or_none(node.get("gradient_of")),
            gradient_off=_finite(node.get("gradient_off")),
            autograd=tuple(map(str, list_or_empty(node.get("autograd")))),
            compiled=tuple(map(str, list_or_empty(node.get("compiled")))),
        )


def read_summary(data: dict[str, Any]) -> ValueSummary:
    """Read the statistics of a tensor; what is missing is empty."""
    return ValueSummary(
        shape=tuple(map(str, list_or_empty(data.get("shape")))),
        dtype=str(data.get("dtype")),
        stride=tuple(map(str, list_or_empty(data.get("stride")))),
        min=_finite(data.get("min")),
        max=_finite(data.get("max")),
        mean=_finite(data.get("mean")),
        norm=_finite(data.get("norm")),
        nan=int_or_none(data.get("nan")) or 0,
        inf=int_or_none(data.get("inf")) or 0,
        zero=int_or_none(data.get("zero")) or 0,
        hash=str(data.get("hash")),
        samples=tuple(map(str, list_or_empty(data.get("samples")))),
    )


def _finite(value: Any) -> float | None:
    number = float_or_none(value)
    return number if number is not None and math.isfinite(number) else None
