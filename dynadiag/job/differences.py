"""Where the steps of two ranks differ first.

The steps are aligned by their labels (a compile of a function, a collective on a group), so that one more step on one
rank does not make all later ones differ. Steps that correspond are then compared by content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from dynadiag.diff.canonical_graph import CanonicalGraph, CanonicalNode
from dynadiag.diff.graph_changes import first_change
from dynadiag.job.ranks import are_multiples, follows_rank
from dynadiag.job.trace import CollectiveStep, CompileStep, GraphContent, Step, UnseenStep
from dynadiag.recording.records import Break

_MAX_ALIGNED = 4_000_000  # pairs of steps that are aligned; of longer sequences only the common beginning
_MAX_HISTORY = 500  # steps in which an earlier run like the last one is looked for


@dataclass(frozen=True, slots=True)
class Side:
    """One of two ranks: its steps, its rank and how many there are, and whether it ended by itself.

    A rank that did not end by itself may lack later steps.
    """

    steps: tuple[Step, ...]
    rank: int
    world: int
    whole: bool


@dataclass(frozen=True, slots=True)
class RankDifference:
    """The first difference of two ranks, ``kind`` as in the contract.

    ``position`` is that in the steps of the first one. ``first`` and ``second`` are their steps; None if a rank has
    none. ``unusual`` is the side that did something more, 0 or 1. What differs is a break (``brk``), or nodes of the
    ``graph``-th graph: ``node`` on the unusual side, ``other_node`` on the other. ``instead`` is the collective with
    which the rank that lacks one goes on.
    """

    kind: str
    position: int
    first: Step | None
    second: Step | None
    unusual: int
    brk: Break | None = None
    graph: int = 0
    node: CanonicalNode | None = None
    other_node: CanonicalNode | None = None
    instead: CollectiveStep | None = None

    @property
    def step(self) -> Step | None:
        return (self.first, self.second)[self.unusual]

    @property
    def other_step(self) -> Step | None:
        return (self.first, self.second)[1 - self.unusual]

    @property
    def site(self) -> tuple[object, ...]:
        """The key that two ranks share if they differ from a third in the same way."""
        own = self.step or self.first or self.second
        node = self.node or self.other_node
        return self.kind, self.position, own.label if own else None, node.call if node else None


def first_difference(first: Side, second: Side) -> tuple[RankDifference | None, RankDifference | None]:
    """Return the first difference in what the ranks do, and the first in what their caches answered."""
    cache = None
    for found in _differences(first, second):
        if found.kind != "cache":
            return found, cache
        cache = cache or found
    return None, cache


def _differences(first: Side, second: Side) -> Iterator[RankDifference]:
    for kind, start, end, other, last in _aligned(first.steps, second.steps):
        if kind == "equal":
            for offset in range(end - start):
                yield from _pair(first, second, start + offset, other + offset)
        else:
            yield from _unmatched(first, second, (start, end), (other, last))


def _aligned(first: Sequence[Step], second: Sequence[Step]) -> Iterator[tuple[str, int, int, int, int]]:
    """The steps that correspond, and those between them without a partner, as `difflib` gives them."""
    same = 0
    while same < min(len(first), len(second)) and first[same].label == second[same].label:
        same += 1
    yield "equal", 0, same, 0, same
    if (len(first) - same) * (len(second) - same) > _MAX_ALIGNED:
        yield "replace", same, len(first), same, len(second)
        return
    labels = [step.label for step in first[same:]], [step.label for step in second[same:]]
    for kind, start, end, other, last in SequenceMatcher(None, *labels, autojunk=False).get_opcodes():
        yield kind, start + same, end + same, other + same, last + same


def _pair(first: Side, second: Side, position: int, other: int) -> Iterator[RankDifference]:
    one, two = first.steps[position], second.steps[other]
    if isinstance(one, CompileStep) and isinstance(two, CompileStep):
        if one.key != two.key or one.details != two.details:
            yield from _compiles(one, two, position, (first, second))
    elif isinstance(one, UnseenStep) and isinstance(two, UnseenStep):
        if one.count != two.count and not (one if one.count < two.count else two).open:
            yield _of_unseen((first, second), (position, other), (one, two))
    elif (
        isinstance(one, CollectiveStep)
        and isinstance(two, CollectiveStep)
        and (one.key != two.key or _swapped(first, second, one, two) or _is_one_more(first, second, one, two))
    ):
        yield _of_collectives((first, second), position, (one, two))


def _swapped(first: Side, second: Side, one: CollectiveStep, two: CollectiveStep) -> bool:
    """Whether two ranks come to the same lines in another order, or to the same statements on lines of their own.

    Lines alone differ often, by design: each side of an ``if`` has its own.
    """
    return any(_is_swapped((first, second), (one, two), what) for what in (_line, _statement))


def _is_swapped(
    sides: tuple[Side, Side], steps: tuple[CollectiveStep, CollectiveStep], what: Callable[[CollectiveStep], object]
) -> bool:
    own = [what(step) for step in steps]
    return own[0] != own[1] and all(own[side] in _all_issued(sides[1 - side].steps, what) for side in (0, 1))


def _is_one_more(first: Side, second: Side, one: CollectiveStep, two: CollectiveStep) -> bool:
    """Whether one of two ranks issues a collective on a line that the other never does, and so has more."""
    numbers = [sum(isinstance(step, CollectiveStep) for step in side.steps) for side in (first, second)]
    shared = _line(one) in _all_issued(second.steps, _line), _line(two) in _all_issued(first.steps, _line)
    return numbers[0] != numbers[1] and shared[0] != shared[1] and numbers[shared.index(False)] == max(numbers)


def _line(step: CollectiveStep) -> tuple[str | None, int | None]:
    return step.collective.file, step.collective.line


def _statement(step: CollectiveStep) -> tuple[str | None, str | int | None]:
    return step.collective.file, step.statement or step.collective.line


def _all_issued(steps: Sequence[Step], what: Callable[[CollectiveStep], object]) -> set[object]:
    return {what(step) for step in steps if isinstance(step, CollectiveStep)}


def _of_collectives(
    sides: tuple[Side, Side], position: int, steps: tuple[CollectiveStep, CollectiveStep]
) -> RankDifference:
    """The difference of two collectives in one place: one more on a rank, one that a rank left out, or another one.

    It is one more if only this rank ever issues one on that line, and the other's is issued by both. It is left out if
    the rank is past the loop in which the other issues it, or if both issue both, and the other rank does what followed
    the last time.
    """
    shared = [_line(steps[side]) in _all_issued(sides[1 - side].steps, _line) for side in (0, 1)]
    if steps[0].key == steps[1].key and _is_swapped(sides, steps, _statement):
        unusual = shared.index(False) if shared[0] != shared[1] else _on_earlier_line(*steps)
        return RankDifference("collective", position, *steps, unusual)
    if shared[0] != shared[1]:
        side = shared.index(False)
        return _only_on(steps, 1 - side if _left_loop(steps[side], steps[1 - side]) else side, position, unusual=side)
    if all(shared) and (usual := _usual_step(sides[0].steps, position)) is not None:
        same = [(usual.key, usual.details) == (step.key, step.details) for step in steps]
        if same[0] != same[1]:
            side = same.index(True)
            return _only_on(steps, side, position, unusual=1 - side)
    return RankDifference("collective", position, *steps, _on_earlier_line(*steps))


def _left_loop(step: CollectiveStep, other: CollectiveStep) -> bool:
    """Whether the line of a collective comes after the loop in which another one is."""
    one, two = step.collective, other.collective
    same = (one.file, one.function) == (two.file, two.function)
    return same and None not in (one.line, other.loop_end) and (one.line or 0) > (other.loop_end or 0)


def _only_on(steps: tuple[CollectiveStep, CollectiveStep], side: int, position: int, *, unusual: int) -> RankDifference:
    """A collective that one rank issues, and the other does not: it goes on with another one."""
    only: list[CollectiveStep | None] = [None, None]
    only[side] = steps[side]
    return RankDifference("collective", position, only[0], only[1], unusual, instead=steps[1 - side])


def _usual_step(steps: Sequence[Step], position: int) -> Step | None:
    """What came after the longest earlier run of steps that is like the one before a position."""
    longest, usual = 0, None
    for end in range(position - 1, max(0, position - _MAX_HISTORY), -1):
        length = 0
        while length < end and _is_same(steps[end - 1 - length], steps[position - 1 - length]):
            length += 1
        if length > longest:
            longest, usual = length, steps[end]
    return usual


def _is_same(one: Step, two: Step) -> bool:
    return one is two or (one.label, one.details) == (two.label, two.details)


def _on_earlier_line(one: CollectiveStep, two: CollectiveStep) -> int:
    """Of two collectives the one on an earlier line of the same function: the other rank went past that line."""
    same = (one.collective.file, one.collective.function) == (two.collective.file, two.collective.function)
    return 0 if same and (one.collective.line or 0) < (two.collective.line or 0) else 1


def _of_unseen(
    sides: tuple[Side, Side], positions: tuple[int, int], steps: tuple[UnseenStep | None, UnseenStep | None]
) -> RankDifference:
    """More collectives of compiled code or C++ on one rank. If the other has fewer of them, and not none, it left the
    loop in which they are.
    """
    counts = [0 if step is None else step.count for step in steps]
    more = int(counts[1] > counts[0])
    after = sides[1 - more].steps[positions[1 - more] + (steps[1 - more] is not None) :]
    instead = next((step for step in after if isinstance(step, CollectiveStep)), None)
    return RankDifference("collective", positions[0], *steps, more if min(counts) == 0 else 1 - more, instead=instead)


def _unmatched(first: Side, second: Side, here: tuple[int, int], there: tuple[int, int]) -> Iterator[RankDifference]:
    """The differences in steps that only one of the ranks has."""
    sides = (first, second)
    spans = (here, there)
    own = [sides[side].steps[slice(*spans[side])] for side in (0, 1)]
    ended = [spans[side][0] == len(sides[side].steps) and not sides[side].whole for side in (0, 1)]
    for side in (0, 1):
        steps: list[Step | None] = [None, None]
        later = sides[1 - side].steps[spans[1 - side][0] :]
        for step in own[side]:
            steps[side] = step
            if isinstance(step, CompileStep) and not ended[1 - side]:
                if step.recompile is not None:
                    yield RankDifference("recompile", here[0], steps[0], steps[1], side)
                else:
                    yield from _of_one(sides[1 - side], side, here[0], step, later)
    for side in (0, 1):
        for step in own[side]:
            if isinstance(step, UnseenStep) and not ended[1 - side]:
                yield _of_unseen(sides, (here[0], there[0]), (step, None) if side == 0 else (None, step))
    issued = [next((step for step in own[side] if isinstance(step, CollectiveStep)), None) for side in (0, 1)]
    one, two = issued
    if one is not None and two is not None:
        yield _of_collectives(sides, here[0], (one, two))
    elif one is not None and not ended[1]:
        yield RankDifference("collective", here[0], one, None, int(_line(one) in _all_issued(second.steps, _line)))
    elif two is not None and not ended[0]:
        yield RankDifference("collective", here[0], None, two, int(_line(two) not in _all_issued(first.steps, _line)))


def _of_one(
    lacking: Side, side: int, position: int, step: CompileStep, later: Sequence[Step]
) -> Iterator[RankDifference]:
    """The difference where one rank compiles a function that the other, which goes on with ``later``, does not."""
    compiles_it = any(each.label == step.label for each in lacking.steps)  # some do so earlier than others, to warm up
    waits = not lacking.whole and all(
        isinstance(each, CompileStep) or (isinstance(each, UnseenStep) and each.open) for each in later
    )
    if compiles_it or waits:
        if (other := _other_function(step, later)) is not None:
            pair = (step, other) if side == 0 else (other, step)
            nodes = [_collectives(each)[0] for each in pair]
            yield RankDifference("collective", position, *pair, 1, node=nodes[1], other_node=nodes[0])
            return
        if compiles_it or not any(isinstance(each, UnseenStep) and each.count > step.unseen for each in later):
            return  # it may be about to compile it
    only: tuple[Step | None, Step | None] = (step, None) if side == 0 else (None, step)
    if _collectives(step) and any(isinstance(each, CompileStep) for each in lacking.steps) and not _runs(lacking, step):
        yield RankDifference("collective", position, *only, side, node=_collectives(step)[0])
    else:
        yield RankDifference("skip", position, *only, 1 - side)


def _runs(side: Side, step: CompileStep) -> bool:
    """Whether a rank runs a function uncompiled, for it issues a collective in it."""
    name = step.compile.function.rpartition(".")[2]
    issued = (each.collective for each in side.steps if isinstance(each, CollectiveStep))
    return any((each.file, each.function) == (step.compile.file, name) for each in issued)


def _other_function(step: CompileStep, later: Sequence[Step]) -> CompileStep | None:
    """The function that another rank comes to instead, if both have collectives."""
    other = next((each for each in later if isinstance(each, CompileStep) and _collectives(each)), None)
    return other if _collectives(step) and other is not None and other.label != step.label else None


def _collectives(step: CompileStep) -> tuple[CanonicalNode, ...]:
    return next((graph.collectives for graph in step.graphs if graph.collectives), ())


def _compiles(one: CompileStep, two: CompileStep, position: int, sides: tuple[Side, Side]) -> Iterator[RankDifference]:
    """The differences of two compiles of one function: what it is, breaks, graphs, then caches."""
    if (one.recompile is None) != (two.recompile is None):
        yield RankDifference("recompile", position, one, two, int(one.recompile is None))
    yield from _breaks(one, two, position)
    if (one.compile.outcome == "skipped") != (two.compile.outcome == "skipped"):
        yield RankDifference("skip", position, one, two, int(two.compile.outcome == "skipped"))
    first, second = sides
    for index, (here, there) in enumerate(zip(one.graphs, two.graphs, strict=False)):
        found = graph_difference(here, there, (first.rank, second.rank), max(first.world, second.world))
        if found is not None:
            kind, side, nodes = found
            yield RankDifference(kind, position, one, two, side, None, index, nodes[side], nodes[1 - side])
    if len(one.graphs) != len(two.graphs):
        yield RankDifference("graph", position, one, two, int(len(one.graphs) < len(two.graphs)))
    if _caches_differ(one, two):
        yield RankDifference("cache", position, one, two, int(one.compile.cache == "hit"))


def _caches_differ(one: CompileStep, two: CompileStep) -> bool:
    """Whether one rank gets from the cache what the other compiles. That may not have asked it: its cache is off."""
    answers = {step.compile.cache for step in (one, two)}
    if None not in answers:
        return len(answers) == 2
    asked_nothing = one if one.compile.cache is None else two
    return "hit" in answers and asked_nothing.compile.seconds.inductor is not None


def _breaks(one: CompileStep, two: CompileStep, position: int) -> Iterator[RankDifference]:
    known = [{_break_site(each) for each in step.breaks} for step in (one, two)]
    for side, step in enumerate((one, two)):
        for each in step.breaks:
            if _break_site(each) not in known[1 - side]:
                yield RankDifference("break", position, one, two, side, brk=each)
                return


def _break_site(item: Break) -> tuple[object, ...]:
    return item.gb_type, item.span.file, item.span.line


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
    if (collectives := _collective_nodes(here, there)) is not None:
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


def _collective_nodes(here: GraphContent, there: GraphContent) -> Nodes | None:
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
