"""What Inductor's scheduler knows about each operation when it emits the generated code: where it came from.

The text of a C++ kernel names neither nodes nor lines. The lowered graph does, and it is a local variable of the
function that emits ``inductor_output_code``. It is read once, names only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from dynadiag.torch_private import capture as torch_private

__all__ = ["scheduler_json"]


def scheduler_json(lowered: Any) -> str:
    """Return the operations of a lowered graph in the order of their code, and the Dynamo nodes of its nodes, as JSON.

    ``operations``: ``[group, kind, outputs, reads, origin, origins, reason]``. Operations of one group are fused.
    ``outputs`` and ``reads`` are names of buffers in the wrapper. ``origin`` is the node whose value the first output
    is (or None), ``origins`` are all nodes that Inductor says went into it, ``reason`` says why Inductor falls back to
    ATen. ``sources`` maps a node to Dynamo's nodes. A branch or a loop body is a lowered graph of its own. Its code
    comes before that of the graph that contains it, and its name is a prefix of its nodes' and buffers' names.
    """
    graphs = [*_subgraphs(lowered, set()), lowered]
    groups = count()
    operations = [row for graph in graphs for row in _operations(graph, groups)]
    return json.dumps(
        {"operations": operations, "sources": dict(pair for graph in graphs for pair in _dynamo_sources(graph))}
    )


def _subgraphs(lowered: Any, seen: set[str]) -> Iterator[Any]:
    """The lowered graphs of branches and loop bodies, each once, the innermost first."""
    for graph in torch_private.lowered_subgraphs(lowered):
        if graph.name not in seen:
            seen.add(graph.name)
            yield from _subgraphs(graph, seen)
            yield graph


def _operations(lowered: Any, groups: Iterator[int]) -> Iterator[list[Any]]:
    for group, fused in zip(groups, torch_private.fused_operations(lowered), strict=False):
        for node in fused:
            outputs, reads, origin, origins = torch_private.operation_provenance(node, lowered)
            kind, reason = type(node.node).__name__, torch_private.fallback_reason(node)
            yield [group, kind, outputs, reads, origin, origins, reason]


def _dynamo_sources(lowered: Any) -> Iterator[tuple[str, list[str]]]:
    for node in lowered.graph.nodes:
        if node.op not in ("placeholder", "output") and (names := torch_private.dynamo_source_names(node)):
            yield lowered.qualify_name(node.name), names
