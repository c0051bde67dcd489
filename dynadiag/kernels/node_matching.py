"""Match the nodes of two graphs of the same computation by their operators, in order."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from dynadiag.kernels.graph_parser import PrintedNode, SourceLine

__all__ = ["match_source_lines"]

# Operators that have different names in Dynamo's graph and in ATen's.
_MATRIX_PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "mv", "dot"})
_ATEN_NAMES = {
    "truediv": "div",
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "itruediv": "div",
    "conv2d": "convolution",
}
_MAX_NODES = 5000  # nodes; matching more takes longer than a user waits


def match_source_lines(nodes: Sequence[PrintedNode], others: Sequence[PrintedNode]) -> dict[str, SourceLine]:
    """Map the name of each node to the source line of the node in `others` that it matches.

    Returns nothing for graphs of more than `_MAX_NODES` nodes.
    """
    if len(nodes) > _MAX_NODES:
        return {}
    matcher = SequenceMatcher(
        None,
        [_canonical_operator(node) for node in nodes],
        [_canonical_operator(node) for node in others],
        autojunk=False,
    )
    return {
        node.name: other.source_line
        for start, begin, size in matcher.get_matching_blocks()
        for node, other in zip(nodes[start : start + size], others[begin : begin + size], strict=True)
        if other.source_line is not None
    }


def _canonical_operator(node: PrintedNode) -> str:
    """The name that Dynamo's and ATen's versions of an operator share."""
    name = node.operator.strip("_")
    return "product" if name in _MATRIX_PRODUCTS else _ATEN_NAMES.get(name, name)
