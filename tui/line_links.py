"""Which lines belong together: derived from what torch writes into graphs and generated code.

A place is a line of the user's source, and everything is tied to places. Graphs name theirs in comments (``# File:
PATH:LINE in FN, code: ...``) above the nodes that it made; the nodes that Dynamo's graph was kept with name them as
data; generated code names nodes (``# Topologically Sorted Source Nodes: [relu]``, ``# Source node to ATen node
mapping:``). A C++ kernel names nothing but its operators, in its own name: a link through those is a guess, and is said
to be one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

__all__ = ["LineKey", "LineLinks", "NodeNames", "graph_links", "invert_links", "kernel_links", "source_links"]

LineKey = tuple[str, int]  # file, line

_COMMENT = re.compile(r"^\s*# File: (.+?):(\d+) in ")
_NODE = re.compile(r"^\s+([A-Za-z_]\w*)(?:: ?\"[^\"\n]*\")? = (\S[^(;]*)?")
_ARGUMENT = re.compile(r"^\s+([A-Za-z_]\w*): \"[^\"]*\"")
_RETURN = ("return ", "#")
_CLEARED = re.compile(r"^(?:\w+ = )*None")

_SOURCES = re.compile(r"^\s*# Topologically Sorted Source Nodes: \[([^\]]*)\]")
_MAPPED = re.compile(r"^\s*#\s+(\w+) => ")
_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(")
_CALLED = re.compile(r"^\s+(\w+)(?:\.run)?\(")
_FUSED = re.compile(r"_fused_(.+?)_\d+$")
_SHORTEST = 2  # letters of an operator's name that is looked for in a kernel's


@dataclass(frozen=True, slots=True)
class LineLinks:
    """The places of the lines of one document (0-based lines), and the lines of each place."""

    keys: Mapping[int, frozenset[LineKey]] = field(default_factory=dict)
    lines: Mapping[LineKey, tuple[int, ...]] = field(default_factory=dict)
    inferred: frozenset[int] = frozenset()  # lines whose tie was inferred, and not said by torch
    defined: Mapping[str, int] = field(default_factory=dict)  # the line of each node, in a graph

    def keys_of(self, line: int) -> frozenset[LineKey]:
        """The places that a line belongs to; none where there is no mapping."""
        return self.keys.get(line, frozenset())

    def lines_of(self, places: Iterable[LineKey]) -> tuple[int, ...]:
        """The lines that belong to any of these places, in order."""
        return tuple(sorted({line for place in places for line in self.lines.get(place, ())}))


@dataclass(slots=True)
class NodeNames:
    """Nodes by name, and operators by name, with their places: collected from the graphs of a compile."""

    nodes: dict[str, frozenset[LineKey]] = field(default_factory=dict)
    operators: dict[str, set[LineKey]] = field(default_factory=dict)
    _alone: dict[LineKey, frozenset[LineKey]] = field(default_factory=dict)
    _callers: dict[LineKey, frozenset[LineKey]] = field(default_factory=dict)  # of lines of a library, the user's

    def add(self, node: str | None, operator: str | None, place: LineKey) -> None:
        if node:
            known = self.nodes.get(node)
            self.nodes[node] = self.alone(place) if known is None else known | {place}
        if operator:
            self.operators.setdefault(operator, set()).add(place)

    def alone(self, place: LineKey) -> frozenset[LineKey]:
        """The set of one place; one object for each, as 100,000 lines may share it."""
        return self._alone.setdefault(place, frozenset({place}))

    def learn(self, comment: LineKey, places: Set[LineKey]) -> frozenset[LineKey]:
        """What a comment above nodes stands for: it may name a line of torch's own, where they know the user's."""
        if places != {comment}:
            self._callers[comment] = self._callers.get(comment, frozenset()) | places
        return frozenset(places)

    def of_comment(self, place: LineKey) -> frozenset[LineKey]:
        """The user's lines that a comment of a graph stands for: several, where one line of a library served them."""
        return self._callers.get(place) or self.alone(place)

    def of_kernel(self, name: str) -> frozenset[LineKey]:
        """The places of the operators that a kernel is named after."""
        found = _FUSED.search(name)
        part = f"_{found[1]}_" if found else ""
        hits = [op for op in self.operators if len(op) >= _SHORTEST and f"_{op.strip('_')}_" in part]
        return frozenset(place for op in hits for place in self.operators[op])


def source_links(file: str, count: int, mapped: Iterable[LineKey]) -> LineLinks:
    """A source file: a line is its own place, where anything was made of it."""
    places = {line - 1: frozenset({(file, line)}) for name, line in mapped if name == file and 1 <= line <= count}
    return invert_links(places)


def graph_links(
    lines: Sequence[str],
    names: NodeNames,
    spans: Mapping[str, LineKey] | None = None,
    *,
    dynamo: bool = False,
    believed: bool = True,
) -> LineLinks:
    """A printed graph. `spans` has the places of nodes that are known otherwise; the others' are in its comments.

    Where those are not `believed`, nodes without a span have no place, and the others' is a guess. `names` learns this
    graph's operators, and its nodes where it is `dynamo`'s: those are what generated code names.
    """
    known, places, defined = spans or {}, dict[int, frozenset[LineKey]](), dict[str, int]()
    here: LineKey | None = None
    head, under, guessed = 0, set[LineKey](), set[int]()
    for number, line in enumerate(lines):
        if found := _COMMENT.match(line):
            here, head, under = (found[1], int(found[2])), number, set()
            if believed:
                places[number] = names.of_comment(here)
        elif not line.strip():
            here = None
        elif node := (_NODE.match(line) or _ARGUMENT.match(line)):
            defined.setdefault(node[1], number)
            own = known.get(node[1])
            found_at = names.alone(own) if own else names.of_comment(here) if here and believed else frozenset()
            if not found_at or _CLEARED.match(line.strip()):
                continue
            places[number] = found_at
            if own and here:
                under.add(own)
                places[head] = names.learn(here, under) if dynamo else frozenset(under)
                guessed.update(() if believed else (head, number))
            elif len(found_at) > 1:
                guessed.add(number)
            for place in found_at:
                names.add(node[1] if dynamo else None, _operator(node), place)
        elif here and places.get(head) and not line.lstrip().startswith(_RETURN):
            places[number] = places[head]  # a statement that names no node: x[0] = y, or the rest of a long one
    return invert_links(places, frozenset(guessed), defined)


def _operator(node: re.Match[str]) -> str | None:
    """The last name of a node's target: ``relu`` of ``torch.ops.aten.relu.default``."""
    target = node[2] if node.re is _NODE else None
    if not target:
        return None
    parts = target.strip().split(".")
    return parts[3] if parts[:2] == ["torch", "ops"] and len(parts) > 3 else parts[-1]


def kernel_links(lines: Sequence[str], names: NodeNames) -> LineLinks:
    """A generated module: its kernels, the calls of them, and the calls into libraries."""
    reader = _Module(names)
    for number, line in enumerate(lines):
        reader.line(number, line)
    return invert_links(reader.places, frozenset(reader.guessed))


class _Module:
    """One reading of a generated module."""

    def __init__(self, names: NodeNames) -> None:
        self._names = names
        self.places: dict[int, frozenset[LineKey]] = {}
        self.guessed: set[int] = set()
        self._kernels: dict[str, tuple[frozenset[LineKey], bool]] = {}
        self._pending: set[LineKey] = set()  # of the comment above
        self._comment: list[int] = []
        self._inside: str | None = None  # the kernel whose definition this is

    def line(self, number: int, line: str) -> None:
        if self._inside is not None:
            self._body(number, line)
        elif line.lstrip().startswith("#"):
            self._note(number, line)
        elif found := _DEFINED.match(line):
            self._define(number, line, found[1])
        else:
            self._statement(number, line)

    def _note(self, number: int, line: str) -> None:
        if found := _SOURCES.match(line):
            self._pending, self._comment = self._of(found[1].split(",")), [number]
        elif self._comment:
            self._comment.append(number)
            if mapped := _MAPPED.match(line):
                self._pending |= self._of([mapped[1]])

    def _of(self, nodes: Iterable[str]) -> set[LineKey]:
        return {place for node in nodes for place in self._names.nodes.get(node.strip(), ())}

    def _define(self, number: int, line: str, name: str) -> None:
        places, guessed = frozenset(self._pending), False
        if not places:
            places, guessed = self._names.of_kernel(name), True
        self._kernels[name] = (places, guessed)
        self._spread(self._comment, places, False)
        self._forget()
        self._spread([number], places, guessed)
        if line.rstrip().endswith(("'''", '"""')):
            self._inside = name

    def _body(self, number: int, line: str) -> None:
        name = self._inside or ""
        if line.startswith(("'''", '"""')):
            self._inside = None
        elif line.strip():
            self._spread([number], *self._kernels[name])

    def _statement(self, number: int, line: str) -> None:
        called = _CALLED.match(line)
        if called and called[1] in self._kernels:
            self._spread([number], *self._kernels[called[1]])
        elif self._pending and line.strip():
            self._spread([*self._comment, number], frozenset(self._pending), False)
        self._forget()

    def _forget(self) -> None:
        self._pending, self._comment = set(), []

    def _spread(self, numbers: Iterable[int], places: frozenset[LineKey], guessed: bool) -> None:
        for number in numbers:
            if places:
                self.places[number] = places
                if guessed:
                    self.guessed.add(number)


def invert_links(
    places: dict[int, frozenset[LineKey]],
    guessed: frozenset[int] = frozenset(),
    defined: Mapping[str, int] | None = None,
) -> LineLinks:
    """The links of a document whose lines have these places."""
    lines: dict[LineKey, list[int]] = {}
    for number, found in places.items():
        for place in found:
            lines.setdefault(place, []).append(number)
    return LineLinks(places, {place: tuple(numbers) for place, numbers in lines.items()}, guessed, defined or {})
