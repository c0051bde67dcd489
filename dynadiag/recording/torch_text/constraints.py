"""Reads what torch says of a size that was marked dynamic, or that export was given a `Dim` for, and is not free.

It is the text of a ``ConstraintViolationError`` (produce_guards_verbose, symbolic_shapes.py), and what torch suggests
at its end (``prettify_results``), or of the ValueError that export raises of a `Dim.DYNAMIC` (non_strict_utils.py).
Read in torch 2.11 to 2.15.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dynadiag.recording.torch_text.sources import source_text

_CONSTANT = re.compile(
    r"You marked (?P<size>\S+) as dynamic but your code specialized it to be a constant \((?P<guard>[^)]*)\)"
)
_RANGE = re.compile(
    r"Not all values of (?P<size>\S+) = \S+ in the specified range(?: (?P<range>\S.*?))? satisfy the generated guard "
    r"(?P<guard>[^\n]+?)\.?(?:\n|$)"
)
_RELATED = re.compile(
    r"The values of (?P<size>\S+) = \S+ (?:and|must always be related to the values of) (?P<guard>\S+) = \S+ "
    r"(?:must always be equal|by)"
)
_HINTED = re.compile(
    r"but (?:export 0/1 specialized due to hint of|tracing inferred a static shape of) (?P<guard>\d+) for dimension "
    r"(?P<size>inputs\[(?:'\w+'|\d+)\]\S*?)\.(?:\n|$)"  # a number from 2.14 on
)
_CONFLICT = re.compile(
    r"user-specified min/max range of (?P<range>\[[^]]*\]), conflicting with the inferred min/max range of "
    r"(?P<guard>\[[^]]*\]), for (?P<size>inputs\[(?:'\w+'|\d+)\]\S*?)\.(?:\n|$)"
)
_FIXES = re.compile(r"^Suggested fixes:\n(?P<fixes>(?:  \S[^\n]*\n?)+)", re.MULTILINE)
_FIX = re.compile(r"^  (?P<name>\w+) = (?P<value>[^\n]+)$", re.MULTILINE)
_INPUT = re.compile(r"^inputs\['(\w+)'\]")
_NO_BOUND = re.compile(r" and \S+ <= IntInfinity\(\)")
_SIZE = re.compile(r"[\w.\[\]'\"]+\.size\(\)\[\d+\]")
_MOST = re.compile(r"<= (\d+)$")
_TRIED = 512  # sizes for which a condition is computed
_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_KINDS = (
    ("constant", _CONSTANT),
    ("constant", _HINTED),
    ("range", _RANGE),
    ("range", _CONFLICT),
    ("related", _RELATED),
)


@dataclass(frozen=True, slots=True)
class ViolatedConstraint:
    """A size that the program let be dynamic, and what the code demands of it.

    ``kind`` is "constant" (``held`` is its one value), "range" (``held`` is a condition, ``allowed`` the range that the
    program named) or "related" (``held`` is another size). ``size`` is the name of a `Dim`, or the size itself.
    """

    kind: str
    size: str
    held: str
    allowed: str = ""

    @property
    def is_multiple(self) -> bool:
        """Whether the code holds for multiples of a number only."""
        return self.kind == "range" and " % " in self.held

    @property
    def said(self) -> str:
        """What is wrong, in a sentence."""
        if self.kind == "constant":
            return f"`{self.size}` is marked dynamic, but the code fixes it to {self.held}"
        if self.kind == "related":
            return f"`{self.size}` and `{self.held}` are marked dynamic, but the code fixes one by the other"
        marked = f" for `{self.allowed}`" if self.allowed else ""
        return f"`{self.size}` is marked dynamic{marked}, but the code holds only for `{self.held}`"


def read_constraints(text: str) -> tuple[ViolatedConstraint, ...]:
    """Return what a message says of each size, in the order of its lines: constants first."""
    return tuple(
        ViolatedConstraint(kind, *(source_text(part) if part else "" for part in _parts(each)))
        for kind, pattern in _KINDS
        for each in pattern.finditer(text)
    )


def _parts(found: re.Match[str]) -> tuple[str, str, str]:
    named = found.groupdict()
    size = _INPUT.sub(r"\1", found["size"])
    return size, _NO_BOUND.sub("", found["guard"]), named.get("range") or ""


def read_fixes(text: str) -> dict[str, str]:
    """Return what to write for each name of a size: ``{"n": "Dim('n', min=3)"}``.

    torch suggests it, with a ``max=oo`` that is no Python. Where it suggests nothing for a range, the least size is
    found from which on the code holds.
    """
    found = _FIXES.search(text)
    fixes = {each["name"]: each["value"] for each in _FIX.finditer(found["fixes"])} if found else {}
    if not fixes:
        fixes = _ranges([each for each in read_constraints(text) if each.kind == "range"])
    return {name: value.replace(", max=oo", "") for name, value in fixes.items()}


def _ranges(constraints: Sequence[ViolatedConstraint]) -> dict[str, str]:
    """The range of each `Dim` from the least size on for which all conditions on it hold; none if one is not read."""
    least: dict[str, int] = {}
    for each in constraints:
        held = _least_size(each.held)
        if held is None or not each.size.isidentifier():
            return {}
        least[each.size] = max(held, least.get(each.size, 0))
    most = {each.size: found[0] for each in constraints if (found := _MOST.findall(each.allowed))}
    above = {name: f", max={most[name]}" if name in most else "" for name in least}
    return {name: f"Dim('{name}', min={size}{above[name]})" for name, size in least.items()}


def _least_size(condition: str) -> int | None:
    """The least size from which on a condition on one size holds, as far as it is tried; None where it is not read.

    >>> _least_size("((-1) + x.size()[0]) != 1")
    3
    """
    sizes = set(_SIZE.findall(condition))
    try:
        parsed = ast.parse(_SIZE.sub("n", condition), mode="eval").body
        failing = [size for size in range(2, _TRIED) if not _computed(parsed, size)]
    except (SyntaxError, ValueError, ArithmeticError, RecursionError):
        return None
    least = max(failing, default=1) + 1
    return least if len(sizes) == 1 and least < _TRIED // 2 else None


def _computed(node: ast.expr, size: int) -> int:
    """The value of an expression of ``n``, a truth as 0 or 1. Raises ValueError where it is of another form."""
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id="n"):
            return size
        case ast.UnaryOp(op=ast.USub()):
            return -_computed(node.operand, size)
        case ast.BinOp() if (operate := _OPERATORS.get(type(node.op))) is not None:
            return int(operate(_computed(node.left, size), _computed(node.right, size)))
        case ast.Compare(ops=[sign], comparators=[other]) if (compare := _OPERATORS.get(type(sign))) is not None:
            return int(compare(_computed(node.left, size), _computed(other, size)))
    raise ValueError(type(node).__name__)
