"""Enlarges the numbers of a slow program: a hang that was reduced under a short time limit must outlast a long one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from minifier.source.trees import apply_edit, render

__all__ = ["enlarged"]

_FACTORS = (10, 100, 1000, 10000)


def enlarged(text: str) -> Iterator[str]:
    """The program with one of its numbers multiplied, small factors and large numbers first."""
    tree = ast.parse(text)
    constants = [(node, node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    numbers = [(value, node) for node, value in constants if isinstance(value, int) and value > 1]
    for factor in _FACTORS:
        for value, node in sorted(numbers, key=lambda pair: -pair[0]):
            yield render(apply_edit(tree, {node: ast.Constant(value * factor)}))
