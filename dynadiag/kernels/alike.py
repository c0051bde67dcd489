"""Match the nodes of two graphs of the same computation by their operators, in order."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from dynadiag.kernels.printed import Place, PrintedNode

__all__ = ["places_of_alike"]

# Operators that have different names in Dynamo's graph and in ATen's.
_PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "mv", "dot"})
_SAME = {"truediv": "div", "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "conv2d": "convolution"}
_MOST = 5000  # nodes; matching more takes longer than a user waits


def places_of_alike(nodes: Sequence[PrintedNode], others: Sequence[PrintedNode]) -> dict[str, Place]:
    """Map the name of each node to the source line of the node in `others` that it matches.

    Returns nothing for graphs of more than `_MAX_NODES` nodes.
    """
    if len(nodes) > _MOST:
        return {}
    matcher = SequenceMatcher(None, [_kind(node) for node in nodes], [_kind(node) for node in others], autojunk=False)
    return {
        node.name: other.place
        for start, begin, size in matcher.get_matching_blocks()
        for node, other in zip(nodes[start : start + size], others[begin : begin + size], strict=True)
        if other.place is not None
    }


def _kind(node: PrintedNode) -> str:
    """The name that Dynamo's and ATen's versions of an operator share."""
    name = node.operator.strip("_")
    return "product" if name in _PRODUCTS else _SAME.get(name, name)
