"""Where the graphs of two ranks differ first, if that is not by design: ranks compute on shards of their own."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from dynadiag.diff import CanonicalGraph, CanonicalNode, first_change
from dynadiag.job.ranks import are_multiples, follows_rank
from dynadiag.job.trace import GraphContent

__all__ = ["graph_difference"]

_TRAINS = re.compile(r"\b(?:\w*dropout\w*|\w*batch_norm)\(")
_USUAL_TYPE = "f32"  # torch's default dtype

Nodes = tuple[CanonicalNode | None, CanonicalNode | None]


def graph_difference(
    here: GraphContent, there: GraphContent, ranks: tuple[int, int], world: int
) -> tuple[str, int, Nodes] | None:
    """Return the kind of the first difference, which of the two nodes is the unusual one, and the nodes."""
    if here.shape == there.shape:
        numbers = _numbers(here, there, ranks, world) if here.types == there.types else None
        return None if numbers is None else ("graph", 1, numbers)
    if (collectives := _collectives(here, there)) is not None:
        return "collective", _unusual(*collectives), collectives
    if (change := first_change(here.masked, there.masked)) is not None:
        return "graph", _unusual(change.before, change.after), (change.before, change.after)
    return None


def _numbers(here: GraphContent, there: GraphContent, ranks: tuple[int, int], world: int) -> Nodes | None:
    """The first two nodes with a whole number that differs and is no shard's own."""
    for one, two in zip(here.graph.nodes, there.graph.nodes, strict=True):
        if one.call != two.call:
            numbers = zip(*(GraphContent(CanonicalGraph((node,))).numbers for node in (one, two)), strict=True)
            if any(left != right and not _of_shards(left, right, ranks, world) for left, right in numbers):
                return one, two
    return None


def _of_shards(left: int, right: int, ranks: tuple[int, int], world: int) -> bool:
    """Whether two numbers are those of two shards: where ranks form several groups, of any two."""
    of_groups = world > 2 and are_multiples(left, right, world)
    return of_groups or follows_rank({ranks[0]: left, ranks[1]: right})


def _collectives(here: GraphContent, there: GraphContent) -> Nodes | None:
    """The first collectives of two graphs that differ in operation, arguments or type; or the one that is more."""
    first, second = here.collectives, there.collectives
    labels = [(node.call, node.type) for node in first], [(node.call, node.type) for node in second]
    if len(first) == len(second):
        differing = (place for place, label in enumerate(labels[0]) if label != labels[1][place])
        return next(((first[place], second[place]) for place in differing), None)
    for kind, start, end, other, last in SequenceMatcher(None, labels[0], labels[1], autojunk=False).get_opcodes():
        if kind != "equal":
            return first[start] if start < end else None, second[other] if other < last else None
    return None


def _unusual(one: CanonicalNode | None, two: CanonicalNode | None) -> int:
    """Which of two nodes is the unusual one: that which the other graph lacks, that which switches something on, that
    of another dtype than torch's own; else the second."""
    if one is None or two is None:
        return int(one is None)
    for unusual in (_switched_on, _other_dtype):
        counts = unusual(one), unusual(two)
        if counts[0] != counts[1]:
            return int(counts[1] > counts[0])
    return 1


def _switched_on(node: CanonicalNode) -> int:
    """How many arguments are on. Of these functions it is unusual if they are not: a module trains until told."""
    return node.call.count("True") * (-1 if _TRAINS.search(node.call) else 1)


def _other_dtype(node: CanonicalNode) -> int:
    return int(bool(node.type) and not node.type.startswith(_USUAL_TYPE))
