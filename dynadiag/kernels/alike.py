"""Nodes of two graphs of the same computation, matched by their operators, in order."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from dynadiag.kernels.printed import Place, PrintedNode

__all__ = ["places_of_alike"]

# What Dynamo's graph calls otherwise than ATen's.
_PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "mv", "dot"})
_SAME = {"truediv": "div", "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "conv2d": "convolution"}
_MOST = 5000  # nodes: beyond, matching takes longer than a person waits


def places_of_alike(nodes: Sequence[PrintedNode], others: Sequence[PrintedNode]) -> dict[str, Place]:
    """By the names of `nodes`, the line of the one of the others that each matches."""
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
    """What an operator is called in both graphs."""
    name = node.operator.strip("_")
    return "product" if name in _PRODUCTS else _SAME.get(name, name)
