"""Small parsers of expressions that torch wrote: arguments between brackets, sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from math import prod

__all__ = ["element_count", "evaluate_size", "names_in", "rename", "split_arguments", "without_strings"]

_OPENING, _CLOSING = "([{", ")]}"
_NAME = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*")
_STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_MAX_CHARS = 10_000  # characters of one size expression
_MAX_VALUE = 1 << 62


def split_arguments(text: str, start: int = 0) -> list[str]:
    """Split the arguments of a call. `start` is the position after its opening bracket; the closing one ends them."""
    found, depth, begin, quote = [], 0, start, ""
    for place in range(start, len(text)):
        char = text[place]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING and depth:
            depth -= 1
        elif not depth and (char == "," or char in _CLOSING):
            found.append(text[begin:place].strip())
            begin = place + 1
            if char != ",":
                break
    return [argument for argument in found if argument]


def without_strings(text: str) -> str:
    """Return the text with empty string literals."""
    return _STRING.sub("''", text)


def names_in(text: str) -> list[str]:
    """Return the plain names in an expression, without attributes and parts of strings."""
    return _NAME.findall(without_strings(text))


def rename(text: str, names: Mapping[str, str]) -> str:
    """Return an expression with some of its plain names replaced."""
    return _NAME.sub(lambda found: names.get(found[0], found[0]), text)


def element_count(sizes: Iterable[str], hints: Mapping[str, int]) -> int | None:
    """Return the product of sizes, with `hints` as the values of symbols. None if one is unknown."""
    values = [evaluate_size(one, hints) for one in sizes]
    return None if None in values else prod(value for value in values if value is not None)


def evaluate_size(expression: str, hints: Mapping[str, int]) -> int | None:
    """Return the value of a size such as ``16*s0``, with `hints` as the values of symbols, or None.

    The expression is parsed, not evaluated: integers, names, ``+ - * // %`` and brackets.
    """
    if len(expression) > _MAX_CHARS:
        return None
    try:
        value = _evaluate(ast.parse(expression.strip(), mode="eval").body, hints)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return value if value is not None and abs(value) < _MAX_VALUE else None


def _evaluate(node: ast.expr, hints: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return hints.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _evaluate(node.operand, hints)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp):
        return _evaluate_binary(node, _evaluate(node.left, hints), _evaluate(node.right, hints))
    return None


def _evaluate_binary(node: ast.BinOp, left: int | None, right: int | None) -> int | None:
    if left is None or right is None or max(abs(left), abs(right)) >= _MAX_VALUE:
        return None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.FloorDiv):
        return left // right if right else None
    if isinstance(node.op, ast.Mod):
        return left % right if right else None
    return None
