"""The values of a compiled call: what each node computes uncompiled, and what compiled code stored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dynadiag.recording.digest.context import DigestContext, Payload
from dynadiag.recording.digest.graphs import innermost_user_span
from dynadiag.recording.json_values import float_or_none, int_or_none, json_object, list_or_empty, text_or_none
from dynadiag.recording.records import NodeValue, StoredNodeValue, ValuesCall, ValueSummary

_GRAPHS = ("forward", "backward", "inference")


def read_values(
    context: DigestContext, compile_id: str, data: dict[str, Any], payload: Payload
) -> Iterator[ValuesCall | NodeValue | StoredNodeValue]:
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
) -> Iterator[NodeValue | StoredNodeValue]:
    index = context.next_index("node_value")
    yield NodeValue(
        index=index,
        values_call=call,
        node=str(node.get("node")),
        op=str(node.get("op")),
        inputs=tuple(map(str, list_or_empty(node.get("inputs")))),
        span=innermost_user_span(node.get("stack"), stacks),
        summary=_read_summary(node),
        off_float64=_finite(node.get("off_float64")),
        cause=text_or_none(node.get("cause")),
    )
    if isinstance(stored := node.get("stored"), dict):
        off = _finite(stored.get("off"))
        kernel = text_or_none(stored.get("kernel"))
        yield StoredNodeValue(index, kernel, off, stored.get("wrong") is True, _read_summary(stored))


def _read_summary(data: dict[str, Any]) -> ValueSummary:
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
