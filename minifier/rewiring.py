"""Rewires a graph after nodes are removed: which nodes read what, and what must stay so that dataflow is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from minifier.graph_analysis import GraphAnalysis
from minifier.search import PartSelection


@dataclass(frozen=True, slots=True)
class Rewiring:
    """How to rewire a graph: the nodes to keep, in order, and a replacement for each removed node that they read.

    A node that is its own replacement is cut: it becomes an input, or a literal if its value is not a tensor.
    """

    nodes: tuple[int, ...]
    replacements: dict[int, int]
    outputs: tuple[int, ...]

    def key(self) -> str:
        """The identity of the rewired graph."""
        stands = sorted(self.replacements.items())
        return f"{self.nodes}{stands}{self.outputs}"


class Dataflow:
    """The dataflow of one graph. Reachability is stored as bit sets: N nodes take N*N/8 bytes, computed on demand."""

    def __init__(self, anatomy: GraphAnalysis) -> None:
        self.anatomy = anatomy
        self._count = len(anatomy.nodes)
        self._users: list[list[int]] = [[] for _ in range(self._count)]
        for node, reads in enumerate(anatomy.reads):
            for read in reads:
                self._users[read].append(node)

    def rewire(self, candidate: PartSelection) -> Rewiring:
        """The rewired graph of a candidate."""
        kept = self.nodes_of(candidate.kept)
        stands = self._replacements(candidate, kept) if candidate.bypass else {}
        needed = [read for node in sorted(kept) for read in self.anatomy.reads[node]]
        chosen = {n: stands.get(n, n) for n in needed if n not in kept and n in self.anatomy.group_of}
        extra, more = self._support_nodes(kept, chosen, needed, stands)
        nodes = tuple(sorted(kept | extra))
        return Rewiring(nodes, chosen | more, self._outputs(kept, extra, chosen | more))

    def nodes_of(self, parts: Iterable[int]) -> frozenset[int]:
        """The nodes of these parts."""
        return frozenset(node for part in parts for node in self.anatomy.groups[part])

    def producers(self, part: int) -> frozenset[int]:
        """The parts that this one reads, directly or through sizes."""
        group_of = self.anatomy.group_of
        found: set[int] = set()
        pending = [read for node in self.anatomy.groups[part] for read in self.anatomy.reads[node]]
        seen: set[int] = set()
        while pending:
            read = pending.pop()
            if read in group_of:
                found.add(group_of[read])
            elif read not in seen:
                seen.add(read)
                pending.extend(self.anatomy.reads[read])
        return frozenset(found - {part})

    def closure(self, parts: frozenset[int]) -> frozenset[int]:
        """The parts, and the parts between them that cannot be bypassed without losing dataflow."""
        while True:
            joints = self._connecting_nodes(self.nodes_of(parts))
            if not joints:
                return parts
            parts = parts | {self.anatomy.group_of[node] for node in joints}

    def _connecting_nodes(self, kept: frozenset[int]) -> list[int]:
        """Nodes between kept ones for which no substitute depends on all the kept nodes that they depend on.

        Nodes are decided in order, with the earlier ones included. So more kept nodes never give fewer of them.
        """
        mask = sum(1 << node for node in kept)
        before = self._ancestors(kept)
        joints: list[int] = []
        for node in range(self._count):
            if node not in before or node in kept or node not in self.anatomy.group_of:
                continue
            above = self._reachable[node] & mask
            if above and not self._has_complete_substitute(node, above, mask):
                mask |= 1 << node
                joints.append(node)
        return joints

    def _has_complete_substitute(self, node: int, above: int, mask: int) -> bool:
        if isinstance(self.anatomy.values[node], (tuple, list)):
            group = self.anatomy.groups[self.anatomy.group_of[node]]
            return all(user in group for user in self._users[node])  # then its items are checked themselves
        return any(self._reachable_with_self(s) & mask & above == above for s in self.anatomy.substitutes[node])

    def _reachable_with_self(self, node: int) -> int:
        return self._reachable[node] | (1 << node)

    @cached_property
    def _reachable(self) -> list[int]:
        reach: list[int] = []
        for reads in self.anatomy.reads:
            bits = 0
            for read in reads:
                bits |= reach[read] | (1 << read)
            reach.append(bits)
        return reach

    def _ancestors(self, kept: frozenset[int]) -> set[int]:
        leading: set[int] = set()
        pending = [read for node in kept for read in self.anatomy.reads[node]]
        while pending:
            node = pending.pop()
            if node not in leading:
                leading.add(node)
                pending.extend(self.anatomy.reads[node])
        return leading

    def _replacements(self, candidate: PartSelection, kept: frozenset[int]) -> dict[int, int]:
        """For each removed node: the kept node at the end of its chain of substitutes, if there is one.

        Of several it takes the one that depends on most of the kept nodes, to lose the least dataflow.
        """
        mask = sum(1 << node for node in kept)
        severed = self.nodes_of(candidate.cut)
        routes = {node: route for part, route in candidate.routes for node in self.anatomy.groups[part]}
        stands = {node: node for node in kept}
        for node, sources in enumerate(self.anatomy.substitutes):
            if node in stands or node in severed or node not in self.anatomy.group_of:
                continue
            ways = [s for s in sources if s in stands and routes.get(node, s) == s]
            if ways:
                stands[node] = stands[max(ways, key=lambda s: ((self._reachable_with_self(s) & mask).bit_count(), s))]
        return stands

    def _support_nodes(
        self, kept: frozenset[int], chosen: dict[int, int], needed: list[int], stands: dict[int, int]
    ) -> tuple[frozenset[int], dict[int, int]]:
        """The leaves and sizes that the kept nodes read, and the sizes that become literals or follow a replacement."""
        extra: set[int] = set()
        literal: dict[int, int] = {}
        followed: dict[int, int] = {}
        wanted = self._support_wanted(needed)
        for node in sorted(wanted):
            if not self.anatomy.is_support(node):
                extra.add(node)
                continue
            reads = self.anatomy.reads[node]
            tensors = [r for r in reads if r in self.anatomy.group_of and r not in kept]
            if any(r in literal for r in reads) or any(r not in chosen and r not in stands for r in tensors):
                literal[node] = node
                continue
            extra.add(node)
            followed.update({r: chosen.get(r, stands.get(r, r)) for r in tensors})
        used = self._read_by(kept | extra)
        return frozenset(n for n in extra if n in used), {n: s for n, s in (literal | followed).items() if n in used}

    def _support_wanted(self, needed: list[int]) -> set[int]:
        wanted: set[int] = set()
        pending = [node for node in needed if node not in self.anatomy.group_of]
        while pending:
            node = pending.pop()
            if node not in wanted:
                wanted.add(node)
                pending.extend(r for r in self.anatomy.reads[node] if r not in self.anatomy.group_of)
        return wanted

    def _read_by(self, nodes: Iterable[int]) -> set[int]:
        return {read for node in nodes for read in self.anatomy.reads[node]}

    def _outputs(self, kept: frozenset[int], extra: frozenset[int], stands: dict[int, int]) -> tuple[int, ...]:
        """The outputs: nodes that were returned before, then nodes that have lost all their users.

        A node that never had a user (an in-place operation, an assertion) is returned only if there is no other
        output: one more view of an input among the outputs changes what AOTAutograd compiles.
        """
        read = self._read_by(kept | extra).union(stands.values())
        values = self.anatomy.values
        sinks = [n for n in sorted(kept) if n not in read and n not in self.anatomy.returned and values[n] is not None]
        first = [n for n in dict.fromkeys(self.anatomy.returned) if n in kept]
        outputs = [*first, *(n for n in sinks if self._users[n])]
        return tuple(outputs or sinks)
