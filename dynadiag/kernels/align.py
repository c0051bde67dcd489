"""Match the statements of a generated kernel with graph nodes, from the loads to the stores.

Each value in the kernel's text holds a set of nodes. A load holds the node of its buffer. A statement computes a node
when its operands hold the node's inputs and its text fits the node's operator. A statement that fits no node (a
conversion, a broadcast, a part of a variance) is pending: it gets the nodes between the values that are known and the
next statement that fits, or the store. A statement can only compute nodes that lead to the buffers that its value is
stored to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.kernels.printed import PrintedGraph, PrintedNode
from dynadiag.kernels.spelling import REDUCTIONS, is_plain, leaves_no_trace, spelled
from dynadiag.kernels.statements import Statement, statements

__all__ = ["Buffers", "Line", "align", "producer"]

_NUMBERS = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?![\w.])")


_FEW = 12  # nodes shown for one line: a reader cannot use more


@dataclass(frozen=True, slots=True)
class Buffers:
    """The nodes whose values a kernel's parameters hold at its start (`loaded`) and at its end (`stored`)."""

    holds: Mapping[str, frozenset[str]]
    gets: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Line:
    """A statement: its line (0-based in the kernel's source), its kind, and the nodes that it is part of."""

    line: int
    kind: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    """What a variable holds: its nodes, all their ancestors, the statements still without a node, and the constants."""

    nodes: frozenset[str] = frozenset()
    seen: frozenset[str] = frozenset()
    waiting: frozenset[int] = frozenset()
    numbers: frozenset[float] = frozenset()


def align(source: str, buffers: Buffers, graph: PrintedGraph, nodes: Sequence[str]) -> tuple[Line, ...]:
    """Return each statement of a kernel with the nodes that it computes. `nodes` are the nodes of the whole kernel."""
    found = statements(source)
    return _Alignment(found, buffers, graph, nodes).run() if found and nodes else ()


def producer(graph: PrintedGraph, name: str) -> str:
    """Return the node that computes the value of a node. Views and items of a result lead back to their source."""
    for _ in range(len(graph.nodes)):
        root = graph.root(name)
        node = graph.nodes.get(root)
        if node is None or node.operator != "getitem" or not node.inputs:
            return root
        name = node.inputs[0]
    return name


class _Alignment:
    """The state of one alignment."""

    def __init__(self, found: Sequence[Statement], buffers: Buffers, graph: PrintedGraph, nodes: Sequence[str]) -> None:
        self._statements, self._buffers, self._graph = found, buffers, graph
        self._inside = [name for name in nodes if name in graph.nodes and graph.nodes[name].computes]
        self._parents = {name: self._parents_of(graph.nodes[name]) for name in self._inside}
        self._children: dict[str, set[str]] = {}
        for name, parents in self._parents.items():
            for parent in parents:
                self._children.setdefault(parent, set()).add(name)
        self._held = {name for held in buffers.holds.values() for name in held}
        self._loose = {
            name for name, parents in self._parents.items() if not self._held.union(self._parents) >= parents
        }
        self._constants = {name: _numbers(graph.nodes[name].text) for name in self._inside}
        self._makers = _makers(found)
        self._ends = _ends(found, self._makers)
        self._slices: dict[frozenset[str], frozenset[str]] = {}
        self._values: dict[str, _Value] = {}
        self._memory = dict(buffers.holds)
        self._moving: set[int] = set()  # statements whose value depends on what was loaded
        self._nodes: dict[int, set[str]] = {place: set() for place in range(len(found))}

    def _parents_of(self, node: PrintedNode) -> frozenset[str]:
        return frozenset(producer(self._graph, name) for name in node.inputs)

    def run(self) -> tuple[Line, ...]:
        for place, statement in enumerate(self._statements):
            self._step(place, statement)
        for place, makers in enumerate(self._makers):
            self._nodes[place] = self._nodes[place] or {name for one in makers for name in self._nodes[one]}
        return tuple(
            Line(one.line, one.kind, self._ordered(self._nodes[place] or self._vague(place)))
            for place, one in enumerate(self._statements)
        )

    def _vague(self, place: int) -> frozenset[str]:
        """The candidates of a statement that fits no node, or nothing when there are too many to be useful."""
        found = self._possible(place)
        return found if len(found) <= _FEW else frozenset()

    def _ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        chosen = set(names)
        return tuple(name for name in self._inside if name in chosen)

    def _step(self, place: int, statement: Statement) -> None:
        operands = [self._values[name] for name in statement.reads if name in self._values]
        if statement.kind == "store":
            self._store(place, statement, operands)
            return
        if statement.kind == "constant":
            numbers = frozenset() if statement.number is None else frozenset([statement.number])
            value = _Value(waiting=frozenset([place]), numbers=numbers)
        elif statement.kind == "load":
            held = frozenset(name for one in statement.pointers for name in self._memory.get(one, ()))
            value = self._loaded(place, _joined([*operands, _Value(held, held)], place), indexed=bool(operands))
        else:
            value = self._computed(place, statement, operands)
        for target in statement.targets:
            self._values[target] = value

    def _loaded(self, place: int, whole: _Value, *, indexed: bool) -> _Value:
        """A load. One at a computed index can be a node by itself, such as an embedding."""
        fitting = self._unspelled(one for one in self._possible(place) if self._parents[one] <= whole.nodes)
        if not indexed or not fitting:
            return whole
        self._belongs(whole, place, fitting)
        return _Value(frozenset(fitting), whole.seen | fitting)

    def _computed(self, place: int, statement: Statement, operands: list[_Value]) -> _Value:
        whole = _joined(operands, place)
        if whole.seen:
            self._moving.add(place)
        names = self._fitting(place, statement, operands, whole)
        if not names:
            return whole
        self._belongs(whole, place, names)
        return _Value(frozenset(names), whole.seen | set(names))

    def _belongs(self, whole: _Value, place: int, names: set[str]) -> None:
        """Assign `names` to a statement. Its pending operands get the nodes in between, or the same nodes."""
        self._nodes[place] |= names
        between = self._between(whole, names)
        for one in whole.waiting - {place}:
            self._nodes[one] |= (between or names) if one in self._moving else names

    def _between(self, whole: _Value, names: set[str]) -> set[str]:
        """The ancestors of `names` that no statement has computed so far."""
        found: set[str] = set()
        queue = [parent for name in names for parent in self._parents[name]]
        while queue:
            name = queue.pop()
            if name in self._parents and name not in whole.seen and name not in found:
                found.add(name)
                queue += self._parents[name]
        return found

    def _fitting(self, place: int, statement: Statement, operands: list[_Value], whole: _Value) -> set[str]:
        """The nodes that a statement computes. There are several when the generator merged equal nodes."""
        if statement.reduces and (going := {one for one in whole.nodes if self._is_reduction(one)}):
            return going  # the next step of the same sum
        scored = {
            name: score
            for name in self._near(whole) & self._possible(place)
            if (self._is_reduction(name) or not statement.accumulates)
            and spelled(self._graph.nodes[name].operator, self._text(statement))
            and (score := self._score(name, operands, whole)) is not None
        }
        best = max(scored.values(), default=None)
        return {name for name, score in scored.items() if score == best}

    def _near(self, whole: _Value) -> set[str]:
        """The nodes that may be computed next: users of known values, also through nodes that have no statement."""
        found: set[str] = set()
        queue = [*whole.nodes, *whole.seen]
        while queue:
            new = self._children.get(queue.pop(), set()) - found
            found |= new
            queue += self._unspelled(new) | {name for name in new if leaves_no_trace(self._graph.nodes[name].operator)}
        return found | self._loose

    def _text(self, statement: Statement) -> str:
        return f"{' '.join(statement.targets)} ={statement.text}"

    def _is_reduction(self, name: str) -> bool:
        return name in self._parents and self._graph.nodes[name].operator in REDUCTIONS

    def _score(self, name: str, operands: list[_Value], whole: _Value) -> tuple[int, int] | None:
        """How well the operands fit a node, or None when they cannot be its inputs. Higher is better."""
        parents = self._parents[name]
        missing = parents - whole.nodes
        if any(not self._silent(one, whole) for one in missing):
            return None
        behind = parents.union(*(self._parents.get(one, frozenset()) for one in missing))
        for operand in operands:
            if operand.nodes and not (operand.nodes & parents or (missing and operand.seen & behind)):
                return None
        mine = self._constants[name]
        agreement = len(mine & whole.numbers) - len(whole.numbers - mine) if whole.numbers else -len(mine)
        return -len(missing), agreement

    def _silent(self, name: str, whole: _Value, depth: int = 4) -> bool:
        """Whether a node may have been computed without a statement of its own."""
        if name in whole.nodes:
            return True
        if name not in self._parents:  # loaded from a buffer whose node is not known
            return name not in self._held
        operator = self._graph.nodes[name].operator
        if depth == 0 or (is_plain(operator) and not leaves_no_trace(operator)):
            return False
        return all(one in whole.seen or self._silent(one, whole, depth - 1) for one in self._parents[name])

    def _store(self, place: int, statement: Statement, operands: list[_Value]) -> None:
        whole = _joined(operands, place)
        sinks = {name for one in statement.pointers for name in self._buffers.gets.get(one, ())}
        mine = {name for name in whole.nodes if name in self._parents} or sinks & set(self._inside)
        late = self._late(whole, sinks)
        self._nodes[place] |= late or mine
        for one in whole.waiting - {place}:
            self._nodes[one] |= late or mine
        left = frozenset(sinks if sinks <= late or sinks <= whole.nodes else late or whole.nodes)
        self._memory.update(dict.fromkeys(statement.pointers, left))
        self._held |= left

    def _late(self, whole: _Value, sinks: set[str]) -> set[str]:
        """The nodes that only a store accounts for: those between the known values and the nodes of the buffer."""
        if sinks <= whole.nodes:
            return set()
        mine = sinks & set(self._inside)
        late = self._between(whole, mine) | (mine - whole.seen)
        return self._unspelled(late) or self._unspelled(one for name in late for one in self._parents[name]) or late

    def _unspelled(self, names: Iterable[str]) -> set[str]:
        """The nodes among `names` that take several statements, whose text says nothing about the operator."""
        found = {name for name in names if name in self._parents and not is_plain(self._graph.nodes[name].operator)}
        return {name for name in found if not leaves_no_trace(self._graph.nodes[name].operator)} or found

    def _possible(self, place: int) -> frozenset[str]:
        """The nodes that lead to the buffers that the statement's value is stored to.

        All nodes when those are unknown.
        """
        pointers = {pointer for end in self._ends.get(place, ()) for pointer in self._statements[end].pointers}
        known = pointers <= self._buffers.gets.keys()
        sinks = frozenset(name for one in pointers for name in self._buffers.gets[one]) if known else frozenset()
        if sinks not in self._slices:
            self._slices[sinks] = frozenset(self._leading(sinks)) or frozenset(self._inside)
        return self._slices[sinks]

    def _leading(self, sinks: frozenset[str]) -> set[str]:
        found: set[str] = set()
        queue = list(sinks)
        while queue:
            name = queue.pop()
            if name in self._parents and name not in found:
                found.add(name)
                queue += self._parents[name]
        return found


def _joined(operands: Iterable[_Value], place: int) -> _Value:
    given = list(operands)
    return _Value(
        frozenset().union(*(one.nodes for one in given)),
        frozenset().union(*(one.seen for one in given)),
        frozenset([place]).union(*(one.waiting for one in given)),
        frozenset().union(*(one.numbers for one in given)),
    )


def _makers(found: Sequence[Statement]) -> list[list[int]]:
    """For each statement, the indexes of the statements that its operands come from."""
    last: dict[str, list[int]] = {}
    makers: list[list[int]] = []
    for place, statement in enumerate(found):
        makers.append([one for name in statement.reads for one in last.get(name, ())])
        for target in statement.targets:
            before = last.get(target, []) if target in statement.reads or "acc" in target else []
            last[target] = [*before[-4:], place]
    return makers


def _ends(found: Sequence[Statement], makers: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """For each statement, the stores that its value reaches."""
    ends: dict[int, set[int]] = {}
    for place in reversed(range(len(found))):
        if found[place].kind == "store":
            ends.setdefault(place, set()).add(place)
        for one in makers[place]:
            ends.setdefault(one, set()).update(ends.get(place, ()))
    return ends


def _numbers(text: str) -> frozenset[float]:
    """The numeric constants among a node's arguments."""
    return frozenset(float(one) for one in _NUMBERS.findall(text.partition("(")[2]))
