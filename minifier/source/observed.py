"""The observations of one run: which statements ran, and which values the expressions had."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minifier.source.trees import expression


def observer_file() -> Path:
    """The program that runs a program and notes what it saw. Its arguments are the program and the file to write."""
    return Path(__file__).with_name("observer.py")


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call of a function: ``owner`` is its object as an expression (empty where it is no method), ``arguments`` are
    written with their parentheses, ``grad`` says whether gradients were on.
    """

    owner: str
    arguments: str
    grad: bool


@dataclass(frozen=True, slots=True)
class Observed:
    """What `observer` has seen. Nodes are those of the tree that the text is parsed to, in the order of `ast.walk`.

    Empty if the program could not be observed: then passes know no values.
    """

    ran: frozenset[int] = frozenset()
    values: dict[int, tuple[str, ...]] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    calls: dict[int, tuple[SeenCall, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Observed:
        """What is in the file that the observer writes, without values whose text is no expression."""
        values = {int(number): tuple(filter(_is_expression, texts)) for number, texts in data["values"].items()}
        kinds = {int(number): kind for number, kind in data["kinds"].items()}
        seen = {int(number): [SeenCall(*call) for call in calls] for number, calls in data["calls"].items()}
        calls = {number: tuple(call for call in known if _can_be_written(call)) for number, known in seen.items()}
        return cls(frozenset(data["ran"]), values, kinds, calls)

    def of(self, tree: ast.Module) -> Seen:
        """The same, by node."""
        return Seen(self, {node: number for number, node in enumerate(ast.walk(tree))})


def _is_expression(text: str) -> bool:
    """Whether a text is one expression: the `repr` of some object may be anything."""
    try:
        expression(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _can_be_written(call: SeenCall) -> bool:
    return (not call.owner or _is_expression(call.owner)) and _is_expression(f"function{call.arguments}")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of each node of a tree."""

    observed: Observed
    numbers: dict[ast.AST, int]

    def ran(self, node: ast.AST) -> bool:
        """Whether a statement ran, as far as is known."""
        return not self.observed.ran or self.numbers.get(node) in self.observed.ran

    def values(self, node: ast.AST) -> tuple[str, ...]:
        """The values of an expression as expressions, at most a few."""
        return self.observed.values.get(self.numbers.get(node, -1), ())

    def kind(self, node: ast.AST) -> str:
        """The class of an expression's value, or the function that it is."""
        return self.observed.kinds.get(self.numbers.get(node, -1), "")

    def calls(self, function: ast.FunctionDef) -> tuple[SeenCall, ...]:
        """The calls of a function that can be written, each different, in their order."""
        return self.observed.calls.get(self.numbers.get(function, -1), ())
