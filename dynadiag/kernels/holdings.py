"""The nodes behind a call's buffers: what a kernel's parameters hold before and after it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dynadiag.kernels.align import Buffers, Line, align, producer
from dynadiag.kernels.module import Call, Definition, Module, base
from dynadiag.kernels.printed import PrintedGraph

__all__ = ["lines_of"]

_Held = Mapping[str, frozenset[str]]  # known nodes by buffer name

_PARAMETER = re.compile(r"((?:in_out|in|out)_ptr\d+)")


def lines_of(module: Module, call: Call, graph: PrintedGraph, nodes: Sequence[str], known: _Held) -> tuple[Line, ...]:
    """Return the statements of the called kernel with their nodes. Lines are those of the module, 1-based."""
    definition = module.definitions.get(call.kernel)
    if definition is None:
        return ()
    found = align(definition.source, _buffers(module, call, definition, known, graph), graph, nodes)
    return tuple(replace(one, line=definition.first + one.line) for one in found)


def _buffers(module: Module, call: Call, definition: Definition, known: _Held, graph: PrintedGraph) -> Buffers:
    """The nodes of a kernel's parameters in this call. Unknown parameters are left out."""
    holds: dict[str, frozenset[str]] = {}
    gets: dict[str, frozenset[str]] = {}
    for parameter, argument in zip(definition.parameters, call.arguments, strict=False):
        found, name = _PARAMETER.search(parameter), base(argument)
        if found is None or name is None:
            continue
        own = found[1]
        found_there = _earlier(module, call, name) if own.startswith("in_out") else name
        holds[own] = _made(graph, _nodes(module, found_there, known, graph)) | _copies(graph, found_there)
        if not own.startswith("in_ptr"):
            gets[own] = frozenset(_written(graph, name)) or _made(graph, _nodes(module, name, known, graph))
    return Buffers({one: nodes for one, nodes in holds.items() if nodes}, {one: to for one, to in gets.items() if to})


def _nodes(module: Module, name: str, known: _Held, graph: PrintedGraph) -> frozenset[str]:
    """The nodes of a buffer, under the first of its names that is known."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        if name in known:
            return known[name]
        if name in graph.nodes:
            return frozenset([name])
        name = module.aliases.get(name) or module.items.get(name, ("", 0))[0] or module.parts.get(name, name)
    return frozenset()


def _made(graph: PrintedGraph, names: Iterable[str]) -> frozenset[str]:
    return frozenset(producer(graph, name) for name in names)


def _earlier(module: Module, call: Call, name: str) -> str:
    """The buffer whose memory this one reuses: the last that an earlier call used."""
    before = {after: old for old, after in module.reuses.items()}
    used: set[str | None] = set()
    for one in module.calls:
        if one.line >= call.line:
            break
        used.update(one.outputs, map(base, one.arguments))
    while name not in used and name in before:
        name = before[name]
    return name


def _written(graph: PrintedGraph, name: str) -> tuple[str, ...]:
    """The copies that write an input of the graph, if the buffer is one."""
    users = (graph.nodes[user] for user in graph.users.get(name, ()) if not graph.nodes[name].target)
    return tuple(one.name for one in users if one.operator == "copy_" and one.inputs[:1] == (name,))


def _copies(graph: PrintedGraph, name: str) -> frozenset[str]:
    """The nodes that those copies read."""
    return _made(graph, (source for one in _written(graph, name) for source in graph.nodes[one].inputs[1:]))
