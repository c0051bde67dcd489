"""Match the scheduler's operations, which `capture.generated_code` records, with calls in the generated code.

Inductor's list of an operation's origins is too long: it has every node that was inlined, and for a library call also
the nodes that made its input buffers. So the nodes are those on the way back from what the operation writes, up to the
nodes whose buffers it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from dynadiag.kernels.buffer_access import buffer_access
from dynadiag.kernels.graph_parser import PrintedGraph
from dynadiag.kernels.module_parser import ParsedModule, buffer_name, memory_chain

__all__ = [
    "Operation",
    "ScheduledGraph",
    "backward_slice",
    "match_calls",
    "nodes_of_buffers",
    "nodes_of_calls",
    "parse_operations",
]

_LAYOUT_KINDS = ("ConcatKernel", "NopKernel")  # kinds without code: they only lay out buffers
_ITEM_KIND = "MultiOutput"  # the kind of one output of an operation with several
_SUBGRAPH_KINDS = ("Conditional", "Switch", "WhileLoop", "InvokeSubgraph")  # kinds that run the kernels of subgraphs


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the scheduler. Operations of the same `group` are fused."""

    group: int
    kind: str  # class name in Inductor's IR: "ComputedBuffer", "FallbackKernel", ...
    outputs: tuple[str, ...]
    reads: tuple[str, ...]
    origin: str | None
    origins: tuple[str, ...]
    reason: str | None  # why Inductor falls back to ATen

    @property
    def is_loops(self) -> bool:
        """Whether it is generated as loops, not as a library call or a template."""
        return self.kind == "ComputedBuffer"


@dataclass(frozen=True, slots=True)
class ScheduledGraph:
    """All operations of a graph in the order of their code, and the Dynamo nodes of each node."""

    operations: tuple[Operation, ...] = ()
    dynamo_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def parse_operations(text: str) -> ScheduledGraph:
    """Parse the payload of ``dynadiag_origins``. Invalid data is left out."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ScheduledGraph()
    if not isinstance(data, dict):
        return ScheduledGraph()
    rows, sources = data.get("operations"), data.get("sources")
    return ScheduledGraph(
        tuple(_parse_operation(row) for row in rows if _is_operation(row)) if isinstance(rows, list) else (),
        {str(name): _strings(made) for name, made in sources.items()} if isinstance(sources, dict) else {},
    )


def _is_operation(row: Any) -> bool:
    return isinstance(row, list) and len(row) >= 6 and type(row[0]) is int and isinstance(row[1], str)


def _parse_operation(row: list[Any]) -> Operation:
    origin = row[4] if isinstance(row[4], str) else None
    reason = row[6] if len(row) > 6 and isinstance(row[6], str) else None
    return Operation(row[0], row[1], _strings(row[2]), _strings(row[3]), origin, _strings(row[5]), reason)


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def match_calls(module: ParsedModule, operations: Sequence[Operation]) -> dict[int, list[Operation]]:
    """Return the operations of each call, by its index in ``module.calls``."""
    return _CallMatcher(module).match(operations)


class _CallMatcher:
    """One matching of operations with calls, in the order of the code."""

    def __init__(self, module: ParsedModule) -> None:
        self._module = module
        self._calls_using: dict[str, list[int]] = {}  # the calls that take or return each buffer
        self._calls_writing: dict[str, list[int]] = {}  # the calls that write each buffer
        self._made_by: dict[str, int] = {}  # the call that makes each buffer, so far
        self._items: dict[str, list[str]] = {}  # the outputs of each buffer with several
        self._last = 0
        for place, call in enumerate(module.calls):
            role = buffer_access(module, call)
            for name in dict.fromkeys([*(buffer_name(one) for one in call.arguments), *call.outputs]):
                if name is not None:
                    self._calls_using.setdefault(name, []).append(place)
            for name in dict.fromkeys([*role.writes, *role.updates]):
                self._calls_writing.setdefault(name, []).append(place)

    def match(self, operations: Sequence[Operation]) -> dict[int, list[Operation]]:
        tied: dict[int, list[Operation]] = {}
        groups: dict[int, int] = {}
        waiting: list[Operation] = []
        for operation in operations:
            if operation.kind == _ITEM_KIND:
                for source in operation.reads:
                    self._items.setdefault(source, []).extend(operation.outputs)
        for operation in operations:
            if operation.kind in _LAYOUT_KINDS + _SUBGRAPH_KINDS:
                continue
            place = self._call_of(operation)
            place = groups.get(operation.group) if place is None else place
            if place is None:
                waiting.append(operation)
                continue
            groups.setdefault(operation.group, place)
            self._last = place
            self._made_by.update(dict.fromkeys(operation.outputs, place))
            tied.setdefault(place, []).append(operation)
        for operation in waiting:  # its buffer is not in the text because it never leaves the fused kernel
            if operation.group in groups:
                tied[groups[operation.group]].append(operation)
        return tied

    def _call_of(self, operation: Operation) -> int | None:
        """The call of an operation: the first that has its output buffer, or one that writes it when it already exists.

        In a C++ wrapper, a library call writes the items of its result.
        """
        for output in (*operation.outputs, *(one for name in operation.outputs for one in self._items.get(name, ()))):
            if output in self._made_by or not output.startswith("buf"):
                place = self._writing_call(output)
            else:
                place = self._first_call(output)
            if place is not None:
                return place
        return None

    def _first_call(self, output: str) -> int | None:
        name = self._module.items.get(output, (output, 0))[0]
        name = self._module.aliases.get(name, name)
        found = (self._calls_using[one][0] for one in memory_chain(self._module, name) if one in self._calls_using)
        return next(found, None)

    def _writing_call(self, name: str) -> int | None:
        """A call that writes a buffer again after the call that made it, or that call itself."""
        writers = [place for place in self._calls_writing.get(name, ()) if place >= self._last]
        later = [place for place in writers if place > self._made_by.get(name, -1)]
        return next(iter(later or writers), None)


def nodes_of_calls(module: ParsedModule, scheduled: ScheduledGraph, graph: PrintedGraph) -> dict[int, tuple[str, ...]]:
    """Return the nodes that each call computes, in graph order, by the call's index."""
    libraries = _library_nodes(scheduled, graph)
    made = nodes_of_buffers(scheduled, graph)
    joined = _concatenations(module, scheduled)
    order = {name: place for place, name in enumerate(graph.nodes)}
    found = {}
    for place, operations in match_calls(module, scheduled.operations).items():
        nodes = _computed_nodes(operations, made, graph, libraries) | joined.get(place, set())
        found[place] = tuple(sorted(nodes, key=lambda name: order.get(name, len(order))))
    return found


def nodes_of_buffers(scheduled: ScheduledGraph, graph: PrintedGraph) -> dict[str, frozenset[str]]:
    """Return the nodes whose values each buffer holds."""
    libraries = _library_nodes(scheduled, graph)
    found: dict[str, frozenset[str]] = {}
    for one in scheduled.operations:
        new = [name for name in one.outputs if name not in found and name not in graph.nodes]
        found |= dict.fromkeys(new, frozenset(written_nodes(one, graph, libraries)))
    return found


def _library_nodes(scheduled: ScheduledGraph, graph: PrintedGraph) -> set[str]:
    return {node for one in scheduled.operations if not one.is_loops for node in _end_nodes(one, graph)}


def _concatenations(module: ParsedModule, scheduled: ScheduledGraph) -> dict[int, set[str]]:
    """The concatenations that each call writes a part of. They have no code of their own."""
    wholes = {name: one.origin for one in scheduled.operations for name in one.outputs if one.kind in _LAYOUT_KINDS}
    found: dict[int, set[str]] = {}
    for place, call in enumerate(module.calls):
        role = buffer_access(module, call)
        for name in (*role.writes, *role.updates):
            if origin := wholes.get(module.slices.get(name, "")):
                found.setdefault(place, set()).add(origin)
    return found


def _computed_nodes(
    operations: Sequence[Operation], made: Mapping[str, frozenset[str]], graph: PrintedGraph, libraries: set[str]
) -> set[str]:
    written = {name for one in operations for name in one.outputs}
    inputs = [name for name, node in graph.nodes.items() if not node.target]
    readers = {user for name in inputs for user in graph.users.get(name, ())}
    found: set[str] = set()
    for operation in operations:
        if operation.kind == _ITEM_KIND:
            found |= {operation.origin} if operation.origin else set()
            continue
        stops = {node for name in operation.reads if name not in written for node in made.get(name, ())}
        stops |= {name for name in operation.reads if name in graph.nodes}
        nodes = backward_slice(graph, written_nodes(operation, graph, libraries), set(operation.origins), stops)
        if operation.is_loops and not operation.reads:  # it fills a buffer for another operation
            nodes = {name for name in nodes if not backward_slice(graph, [name], None, set()) & readers} or nodes
        found |= nodes
    return found


def written_nodes(operation: Operation, graph: PrintedGraph, libraries: set[str]) -> set[str]:
    """The nodes whose value an operation writes.

    A loop that prepares an argument of a library call has that call among its origins. It writes the argument, not the
    call's result.
    """
    ends = _end_nodes(operation, graph)
    mine = ends - libraries
    if not operation.is_loops or not ends & libraries:
        return ends
    origins = set(operation.origins)
    arguments = {
        graph.root(source)
        for name in ends & libraries
        if name in graph.nodes
        for source in graph.nodes[name].inputs
        if graph.root(source) in origins
    }
    return (mine | arguments) or ends


def _end_nodes(operation: Operation, graph: PrintedGraph) -> set[str]:
    """The operation's origin node. If Inductor names none, the origins that no other origin reads."""
    if operation.origin is not None:
        return {operation.origin}
    origins = set(operation.origins)
    return {name for name in origins if not origins.intersection(graph.users.get(name, ()))}


def backward_slice(graph: PrintedGraph, start: Iterable[str], within: set[str] | None, stops: set[str]) -> set[str]:
    """Return the backward slice of `start`: its ancestors and itself, only through `within`, not into `stops`."""
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
