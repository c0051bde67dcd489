"""The observations of one run: which statements ran, and which values the expressions had."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Observed", "Seen", "SeenCall", "observer_file"]


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
        """What is in the file that the observer writes."""
        values = {int(number): tuple(texts) for number, texts in data["values"].items()}
        kinds = {int(number): kind for number, kind in data["kinds"].items()}
        calls = {int(number): tuple(SeenCall(*call) for call in found) for number, found in data["calls"].items()}
        return cls(frozenset(data["ran"]), values, kinds, calls)

    def of(self, tree: ast.Module) -> Seen:
        """The same, by node."""
        return Seen(self, {node: number for number, node in enumerate(ast.walk(tree))})


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
