"""The nodes behind a call's buffers: what a kernel's parameters hold before and after it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dynadiag.kernels.align import AlignedStatement, KernelBuffers, align_statements, producer
from dynadiag.kernels.graph_parser import PrintedGraph
from dynadiag.kernels.module_parser import KernelDefinition, ModuleCall, ParsedModule, buffer_name

__all__ = ["align_call"]

_NodesByBuffer = Mapping[str, frozenset[str]]  # known nodes by buffer name

_PARAMETER = re.compile(r"((?:in_out|in|out)_ptr\d+)")


def align_call(
    module: ParsedModule, call: ModuleCall, graph: PrintedGraph, nodes: Sequence[str], known: _NodesByBuffer
) -> tuple[AlignedStatement, ...]:
    """Return the statements of the called kernel with their nodes. Lines are those of the module, 1-based."""
    definition = module.definitions.get(call.kernel)
    if definition is None:
        return ()
    found = align_statements(definition.source, _kernel_buffers(module, call, definition, known, graph), graph, nodes)
    return tuple(replace(one, line=definition.first_line + one.line) for one in found)


def _kernel_buffers(
    module: ParsedModule, call: ModuleCall, definition: KernelDefinition, known: _NodesByBuffer, graph: PrintedGraph
) -> KernelBuffers:
    """The nodes of a kernel's parameters in this call. Unknown parameters are left out."""
    holds: dict[str, frozenset[str]] = {}
    gets: dict[str, frozenset[str]] = {}
    for parameter, argument in zip(definition.parameters, call.arguments, strict=False):
        found, name = _PARAMETER.search(parameter), buffer_name(argument)
        if found is None or name is None:
            continue
        own = found[1]
        found_there = _reused_buffer(module, call, name) if own.startswith("in_out") else name
        holds[own] = _producers(graph, _nodes_of_buffer(module, found_there, known, graph)) | _copied_nodes(
            graph, found_there
        )
        if not own.startswith("in_ptr"):
            gets[own] = frozenset(_input_copies(graph, name)) or _producers(
                graph, _nodes_of_buffer(module, name, known, graph)
            )
    return KernelBuffers(
        {one: nodes for one, nodes in holds.items() if nodes}, {one: to for one, to in gets.items() if to}
    )


def _nodes_of_buffer(module: ParsedModule, name: str, known: _NodesByBuffer, graph: PrintedGraph) -> frozenset[str]:
    """The nodes of a buffer, under the first of its names that is known."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        if name in known:
            return known[name]
        if name in graph.nodes:
            return frozenset([name])
        name = module.aliases.get(name) or module.items.get(name, ("", 0))[0] or module.slices.get(name, name)
    return frozenset()


def _producers(graph: PrintedGraph, names: Iterable[str]) -> frozenset[str]:
    return frozenset(producer(graph, name) for name in names)


def _reused_buffer(module: ParsedModule, call: ModuleCall, name: str) -> str:
    """The buffer whose memory this one reuses: the last that an earlier call used."""
    before = {after: old for old, after in module.reuses.items()}
    used: set[str | None] = set()
    for one in module.calls:
        if one.line >= call.line:
            break
        used.update(one.outputs, map(buffer_name, one.arguments))
    while name not in used and name in before:
        name = before[name]
    return name


def _input_copies(graph: PrintedGraph, name: str) -> tuple[str, ...]:
    """The copies that write an input of the graph, if the buffer is one."""
    users = (graph.nodes[user] for user in graph.users.get(name, ()) if not graph.nodes[name].target)
    return tuple(one.name for one in users if one.operator == "copy_" and one.inputs[:1] == (name,))


def _copied_nodes(graph: PrintedGraph, name: str) -> frozenset[str]:
    """The nodes that those copies read."""
    return _producers(graph, (source for one in _input_copies(graph, name) for source in graph.nodes[one].inputs[1:]))
