"""What Inductor's scheduler knows of each operation when it hands over the generated code: where it came from.

The text of a C++ kernel names neither the nodes nor the lines that it was made of. The lowered graph does, and it is
a local of the function that emits ``inductor_output_code``. It is walked once, names only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dynadiag.torch_private import capture as torch_private

__all__ = ["describe"]


def describe(lowered: Any) -> str:
    """The operations of a lowered graph in the order of their code, and the Dynamo nodes of its nodes, as JSON.

    ``operations``: ``[group, kind, outputs, reads, origin, origins, reason]``. Operations of one group are fused;
    ``outputs`` and ``reads`` are names of buffers in the wrapper, ``origin`` is the node whose value the first output
    is (or None), ``origins`` are all nodes that Inductor says went into it, ``reason`` why a fallback is one.
    ``sources`` maps a node to Dynamo's.
    """
    operations = [
        [group, type(node.node).__name__, outputs, reads, origin, origins, torch_private.fallback_reason(node)]
        for group, fused in enumerate(torch_private.scheduled(lowered))
        for node in fused
        for outputs, reads, origin, origins in [torch_private.provenance(node)]
    ]
    return json.dumps({"operations": operations, "sources": dict(_sources(lowered.graph))})


def _sources(graph: Any) -> Iterator[tuple[str, list[str]]]:
    for node in graph.nodes:
        if node.op not in ("placeholder", "output") and (names := torch_private.dynamo_nodes(node)):
            yield node.name, names
