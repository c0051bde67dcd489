"""The difference of two graphs in canonical form: nodes added, removed, changed and only moved.

Nodes are paired by structure: first those with the same ancestors, then those with the same descendants, then the rest
by the longest common order of operators. So a node inserted in the middle does not change all that follow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from dynadiag.diff.canonical_graph import CanonicalGraph, CanonicalNode, with_inputs_in_order_of
from dynadiag.grouping import paired
from dynadiag.kernels.graph_parser import SourceLine

_MAX_ALIGNED = 4_000_000  # pairs of nodes that are aligned by order; above it, nodes are paired by occurrence


@dataclass(frozen=True, slots=True)
class NodeChange:
    """How a node changed: "added", "removed", "changed" or "moved" (only its position in the order).

    `source_line` is the user's line in the second graph. For a removed node it is the line of the node that took its
    place.
    """

    kind: str
    before: CanonicalNode | None
    after: CanonicalNode | None
    source_line: SourceLine | None

    @property
    def is_operator(self) -> bool:
        """Whether a node that computes changed, not an input or what is returned."""
        return any(node is not None and node.computes for node in (self.before, self.after))


def first_change(before: CanonicalGraph, after: CanonicalGraph) -> NodeChange | None:
    """Return the first change of an operator in the order of the second graph, or None if the graphs are the same.

    Where no operator changed it is the first change of an input or of what is returned.
    """
    changes = graph_changes(before, with_inputs_in_order_of(before, after))
    return next((change for change in changes if change.is_operator), next(iter(changes), None))


def graph_changes(before: CanonicalGraph, after: CanonicalGraph) -> tuple[NodeChange, ...]:
    """Return the changes from one graph to another, in the order of the second graph. Empty if they are the same.

    The order of the inputs counts: see `with_inputs_in_order_of`.
    """
    if before.digest == after.digest:
        return ()
    pairs: dict[int, int] = {}
    for identity in (_ancestor_hashes, _descendant_hashes):
        _pair_equal(identity(before.nodes), identity(after.nodes), pairs)
    _pair_in_order(before.nodes, after.nodes, pairs)
    _pair_equal([node.label for node in before.nodes], [node.label for node in after.nodes], pairs)
    _pair_replaced(before.nodes, after.nodes, pairs)
    placed = [*_pair_changes(before.nodes, after.nodes, pairs), *_added(after.nodes, pairs)]
    placed += _removed(before.nodes, after.nodes, pairs)
    return tuple(change for _, change in sorted(placed, key=lambda item: item[0]))


_Placed = tuple[tuple[int, int, int], NodeChange]  # a change, and its key in the order of the second graph


def _pair_changes(
    before: Sequence[CanonicalNode], after: Sequence[CanonicalNode], pairs: Mapping[int, int]
) -> Iterator[_Placed]:
    moved = _moved(pairs)
    for old, new in pairs.items():
        kind = _kind_of_pair(before[old], after[new], pairs, is_moved=old in moved)
        if kind is not None:
            yield (new, 1, 0), NodeChange(kind, before[old], after[new], after[new].source_line)


def _added(after: Sequence[CanonicalNode], pairs: Mapping[int, int]) -> Iterator[_Placed]:
    taken = set(pairs.values())
    for new, node in enumerate(after):
        if new not in taken:
            yield (new, 1, 0), NodeChange("added", None, node, node.source_line)


def _removed(
    before: Sequence[CanonicalNode], after: Sequence[CanonicalNode], pairs: Mapping[int, int]
) -> Iterator[_Placed]:
    """The removed nodes, each after its nearest predecessor that is left."""
    place = 0
    for old, node in enumerate(before):
        if old in pairs:
            place = pairs[old] + 1
        else:
            yield (place, 0, old), NodeChange("removed", node, None, _line_near(after, place))


def _kind_of_pair(old: CanonicalNode, new: CanonicalNode, pairs: Mapping[int, int], *, is_moved: bool) -> str | None:
    """How a paired node changed, or None if it did not. A node that moved has other inputs if they moved too."""
    if old.label != new.label:
        return "changed"
    if is_moved:
        return "moved"
    return None if tuple(pairs.get(place) for place in old.inputs) == new.inputs else "changed"


def _line_near(nodes: Sequence[CanonicalNode], place: int) -> SourceLine | None:
    """The line of the node at a position, or of the nearest one that has a line."""
    order = [*range(place, len(nodes)), *range(min(place, len(nodes)) - 1, -1, -1)]
    return next((nodes[index].source_line for index in order if nodes[index].source_line is not None), None)


def _pair_equal(before: Sequence[Hashable], after: Sequence[Hashable], pairs: dict[int, int]) -> None:
    """Pair free nodes that have the same key, in order."""
    taken = set(pairs.values())
    olds = [(key, place) for place, key in enumerate(before) if place not in pairs]
    pairs.update(paired(olds, ((key, place) for place, key in enumerate(after) if place not in taken)))


def _pair_in_order(before: Sequence[CanonicalNode], after: Sequence[CanonicalNode], pairs: dict[int, int]) -> None:
    """Pair free nodes by the longest common order of their operators."""
    taken = set(pairs.values())
    olds = [place for place in range(len(before)) if place not in pairs]
    news = [place for place in range(len(after)) if place not in taken]
    if len(olds) * len(news) > _MAX_ALIGNED:
        _pair_equal([node.target for node in before], [node.target for node in after], pairs)
        return
    targets = [before[place].target for place in olds], [after[place].target for place in news]
    for block in SequenceMatcher(None, *targets, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            pairs[olds[block.a + step]] = news[block.b + step]


def _pair_replaced(before: Sequence[CanonicalNode], after: Sequence[CanonicalNode], pairs: dict[int, int]) -> None:
    """Pair free operators that read the same nodes and make the same type: one operator took another's place."""

    def replaces(nodes: Sequence[CanonicalNode], names: Mapping[int, int]) -> list[Hashable]:
        return [
            (tuple(names.get(place) for place in node.inputs), node.type) if node.computes and node.inputs else None
            for node in nodes
        ]

    own = {place: place for place in range(len(after))}
    _pair_equal(replaces(before, pairs), replaces(after, own), pairs)


def _ancestor_hashes(nodes: Sequence[CanonicalNode]) -> list[int]:
    """For each node a hash of its label and all that it depends on. Placeholders count by their order."""
    hashes: list[int] = []
    placeholders = 0
    for node in nodes:
        if node.target == "placeholder":
            placeholders += 1
            hashes.append(hash((node.label, placeholders)))
        else:
            known = tuple(hashes[place] if place < len(hashes) else None for place in node.inputs)
            hashes.append(hash((node.label, known)))
    return hashes


def _descendant_hashes(nodes: Sequence[CanonicalNode]) -> list[int]:
    """For each node a hash of its label and of all that depends on it."""
    users: list[list[tuple[int, int]]] = [[] for _ in nodes]
    hashes = [0] * len(nodes)
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        hashes[place] = hash((node.label, tuple(sorted(users[place]))))
        for number, source in enumerate(node.inputs):
            users[source].append((hashes[place], number))
    return hashes


def _moved(pairs: Mapping[int, int]) -> set[int]:
    """The nodes of the first graph that are not in the longest run of pairs in the same order."""
    olds = sorted(pairs)
    ends: list[int] = []  # the smallest end of an increasing run of each length
    last: list[int] = []  # the index into olds of that end
    previous: list[int | None] = []
    for index, old in enumerate(olds):
        length = bisect_left(ends, pairs[old])
        previous.append(last[length - 1] if length else None)
        ends[length : length + 1] = [pairs[old]]
        last[length : length + 1] = [index]
    kept: set[int] = set()
    step = last[-1] if last else None
    while step is not None:
        kept.add(olds[step])
        step = previous[step]
    return set(olds) - kept
