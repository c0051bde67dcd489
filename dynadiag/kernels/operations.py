"""What the scheduler said of each operation (`capture.origins`), tied to the calls in the generated code.

Inductor's own list of an operation's origins goes too far: it has every node that was inlined on the way, and for a
library call also those that made the buffers that it reads. So the nodes are followed back from what an operation
writes, and not beyond a node whose buffer it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from dynadiag.kernels.module import Module, base, memory
from dynadiag.kernels.printed import PrintedGraph

__all__ = ["Operation", "Scheduled", "nodes_of_calls", "read_operations", "slice_back", "tie"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the scheduler. Operations of one ``group`` are fused."""

    group: int
    kind: str  # the class of Inductor's intermediate representation: "ComputedBuffer", "FallbackKernel", ...
    outputs: tuple[str, ...]
    reads: tuple[str, ...]
    origin: str | None
    origins: tuple[str, ...]
    reason: str | None  # why a fallback is one


@dataclass(frozen=True, slots=True)
class Scheduled:
    """All operations of a graph in the order of their code, and the Dynamo nodes of each node."""

    operations: tuple[Operation, ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_operations(text: str) -> Scheduled:
    """Read the payload of ``dynadiag_origins``. What is not as it should be is left out."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        return Scheduled()
    if not isinstance(data, dict):
        return Scheduled()
    rows, sources = data.get("operations"), data.get("sources")
    return Scheduled(
        tuple(_operation(row) for row in rows if _is_row(row)) if isinstance(rows, list) else (),
        {str(name): _texts(made) for name, made in sources.items()} if isinstance(sources, dict) else {},
    )


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and len(row) >= 6 and type(row[0]) is int and isinstance(row[1], str)


def _operation(row: list[Any]) -> Operation:
    origin = row[4] if isinstance(row[4], str) else None
    reason = row[6] if len(row) > 6 and isinstance(row[6], str) else None
    return Operation(row[0], row[1], _texts(row[2]), _texts(row[3]), origin, _texts(row[5]), reason)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def tie(module: Module, operations: Sequence[Operation]) -> dict[int, list[Operation]]:
    """The operations of each call, by the call's place in ``module.calls``."""
    callers = _callers(module)
    tied: dict[int, list[Operation]] = {}
    groups: dict[int, int] = {}
    before = 0
    waiting: list[Operation] = []
    for operation in operations:
        place = _call_of(operation, module, callers, before)
        place = groups.get(operation.group) if place is None else place
        if place is None:
            waiting.append(operation)
            continue
        groups.setdefault(operation.group, place)
        before = place
        tied.setdefault(place, []).append(operation)
    for operation in waiting:  # its buffer is not in the text: it never left the kernel that its group became
        if operation.group in groups:
            tied[groups[operation.group]].append(operation)
    return tied


def _callers(module: Module) -> dict[str, list[int]]:
    """The calls that each buffer is given to or comes from, in order."""
    found: dict[str, list[int]] = {}
    for place, call in enumerate(module.calls):
        names = [base(argument) for argument in call.arguments]
        for name in dict.fromkeys([*names, *call.outputs]):
            if name is not None:
                found.setdefault(name, []).append(place)
    return found


def _call_of(operation: Operation, module: Module, callers: Mapping[str, list[int]], before: int) -> int | None:
    """The first call that has what the operation writes; an input that it changes counts from the last call on."""
    for output in operation.outputs:
        mutated = not output.startswith("buf")
        name = module.items.get(output, (output, 0))[0]
        name = module.aliases.get(name, name)
        for one in memory(module, name):
            places = callers.get(one, ())
            fitting = [place for place in places if place >= before] if mutated else places
            if fitting:
                return fitting[0]
    return None


def nodes_of_calls(module: Module, scheduled: Scheduled, graph: PrintedGraph) -> dict[int, tuple[str, ...]]:
    """The nodes that each call computes, in the order of the graph."""
    made = {name: sinks(one, graph) for one in scheduled.operations for name in one.outputs}
    order = {name: place for place, name in enumerate(graph.nodes)}
    found = {}
    for place, operations in tie(module, scheduled.operations).items():
        nodes = _computed(operations, made, graph)
        found[place] = tuple(sorted(nodes, key=lambda name: order.get(name, len(order))))
    return found


def _computed(operations: Iterable[Operation], made: Mapping[str, set[str]], graph: PrintedGraph) -> set[str]:
    operations = list(operations)
    written = {name for one in operations for name in one.outputs}
    found: set[str] = set()
    for operation in operations:
        stops = {node for name in operation.reads if name not in written for node in made.get(name, ())}
        stops |= {name for name in operation.reads if name in graph.nodes}
        found |= slice_back(graph, sinks(operation, graph), set(operation.origins), stops)
    return found


def sinks(operation: Operation, graph: PrintedGraph) -> set[str]:
    """The nodes whose value an operation writes: its own, or those that none of its origins reads."""
    if operation.origin is not None:
        return {operation.origin}
    origins = set(operation.origins)
    return {name for name in origins if not origins.intersection(graph.users.get(name, ()))}


def slice_back(graph: PrintedGraph, start: Iterable[str], within: set[str] | None, stops: set[str]) -> set[str]:
    """The nodes that lead to `start`, itself included: only through `within`, and not into `stops`."""
    found: set[str] = set()
    queue = [name for name in start if name in graph.nodes]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        found.add(name)
        for source in graph.nodes[name].inputs:
            if source not in stops and graph.nodes[source].target and (within is None or source in within):
                queue.append(source)
    return found
