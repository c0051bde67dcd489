"""The passes of a reduction: each turns a failing state into a failing state that is no larger.

The main idea is bisection with pinning. The shortest failing prefix ends with a part that is necessary in it. Pin that
part, drop all parts after it, and look for the last necessary part before it. k of N parts take about k log2 N trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from minifier.search.oracle import Oracle
from minifier.search.problem import PartSelection, PartsProblem

# Pairs cost n(n-1)/2 trials: 6 for four parts. For more parts they cost more than they gained in measurements.
_MAX_PAIR_PARTS = 4
# The last of several parts is more likely in the upper half. Measured over 20,000 random choices of 5 parts of 1,000:
# a share of 0.6 (limited to the worst case of halving) takes 56.77 trials on average and more than 60 in 0.3% of the
# cases; a share of 0.5 takes 57.18, and more than 60 in 2.4%.
_SPLIT_SHARE = 0.6
# After several necessary parts close together the next one is probably near: gallop away from the last one.
_MIN_DENSE_PINS = 6
_DENSE_SHARE = 64

PartsOracle = Oracle[PartSelection]


class WholeOnlyError(Exception):
    """Ends a search in which the graph rebuilt from all parts does not fail."""


@dataclass(frozen=True, slots=True)
class PassState:
    """The state between two passes: `pinned` and `free` parts together fail.

    `pinned` parts are probably necessary; `free` parts, in order, are undecided.
    """

    free: tuple[int, ...]
    pinned: frozenset[int] = frozenset()
    bypass: bool = False
    candidate: PartSelection | None = None  # set when no part is undecided
    gaps: tuple[int, ...] = ()  # the distances between successive pins, in undecided parts

    @property
    def kept(self) -> frozenset[int]:
        """All parts that are not removed yet."""
        return self.pinned.union(self.free)


Pass = Callable[[PartsProblem, PartsOracle, PassState], PassState]


def try_suspects(suggested: tuple[frozenset[int], ...]) -> Pass:
    """A pass that tries the caller's suspects: one trial may replace the search."""

    def run(_: PartsProblem, oracle: PartsOracle, state: PassState) -> PassState:
        known = frozenset(state.free)
        candidates = [PartSelection(parts & known, bypass=True) for parts in suggested if parts & known]
        found = oracle.first_failing([c for c in candidates if c.kept != known])
        if found is None:
            return state
        return replace(state, free=tuple(p for p in state.free if p in found.kept), bypass=True)

    return run


def prefix(_: PartsProblem, oracle: PartsOracle, state: PassState) -> PassState:
    """Find the shortest failing prefix. It comes first as the safest step: a prefix keeps all its dataflow."""
    free = state.free
    end = _bisect_least(oracle, lambda n: PartSelection(frozenset(free[:n]), state.bypass), 0, len(free))
    if end == len(free) and not oracle.fails(PartSelection(state.kept, state.bypass)):
        raise WholeOnlyError
    state = replace(state, free=free[: end - 1], pinned=frozenset({free[end - 1]}))
    return _finish_if_pinned_fail(oracle, state)


def connection(problem: PartsProblem, oracle: PartsOracle, state: PassState) -> PassState:
    """Test whether the pinned parts need their producers: one trial without these.

    The answer decides whether later passes cut or bypass the parts that they remove.
    """
    if state.candidate is not None or state.bypass:
        return state
    read = frozenset[int]().union(*(problem.producers(part) for part in state.pinned)).intersection(state.free)
    if not read:
        return state
    if oracle.fails(PartSelection(state.kept - read)):
        return replace(state, free=tuple(p for p in state.free if p not in read))
    return _try_bypass(oracle, state)


def suffix(_: PartsProblem, oracle: PartsOracle, state: PassState) -> PassState:
    """Find the shortest suffix that fails together with the pinned parts: most failures need only a small window."""
    free = state.free
    if state.candidate is not None or not free:
        return state
    count = _bisect_least(
        oracle, lambda n: PartSelection(state.pinned.union(free[len(free) - n :]), state.bypass), 0, len(free)
    )
    start = len(free) - count
    state = replace(state, free=free[start + 1 :], pinned=state.pinned | {free[start]})
    return _finish_if_pinned_fail(oracle, state)


def pin(problem: PartsProblem, oracle: PartsOracle, state: PassState) -> PassState:
    """Pin the last necessary free part, again and again, until the pinned parts fail alone."""
    state = state if state.candidate is not None else _finish_if_pinned_fail(oracle, state)
    while state.candidate is None:
        state = _finish_if_pinned_fail(oracle, _pin_last(problem, oracle, state))
    return state


def sweep(problem: PartsProblem, oracle: PartsOracle, state: PassState) -> PassState:
    """Remove single parts until none can be removed: the result is 1-minimal for any oracle.

    Bisection alone guarantees this only for monotone failures, and real failures are not monotone.
    """
    candidate = _verify(oracle, state)
    if candidate is None:  # only the graph as it was given fails
        return replace(state, candidate=None)
    blocked = 0
    order = sorted(candidate.kept, reverse=True)
    while blocked < len(order):
        parts = order[: min(oracle.width, len(order) - blocked)]
        smaller = oracle.first_failing([way for part in parts for way in _without(problem, candidate, part)])
        if smaller is None:
            order = [*order[len(parts) :], *parts]
            blocked += len(parts)
        else:
            tried = parts.index(next(iter(candidate.kept - smaller.kept)))
            order = [*order[tried + 1 :], *order[:tried]]
            candidate, blocked = smaller, 0
    return replace(state, free=(), pinned=candidate.kept, candidate=candidate)


def pairs(problem: PartsProblem, oracle: PartsOracle, state: PassState) -> PassState:
    """Remove two parts at once, if few are left: an operation and its inverse can only go together."""
    candidate = state.candidate
    if candidate is None or not 2 < len(candidate.kept) <= _MAX_PAIR_PARTS:
        return state
    both = [replace(candidate, kept=candidate.kept.difference(two)) for two in combinations(sorted(candidate.kept), 2)]
    smaller = oracle.first_failing(both)
    if smaller is None:
        return state
    return sweep(problem, oracle, replace(state, pinned=smaller.kept, candidate=smaller))


def _verify(oracle: PartsOracle, state: PassState) -> PartSelection | None:
    """The candidate of the state if it fails, else the best that was tried: switching to bypassing may make it pass."""
    candidate = state.candidate or PartSelection(state.kept, state.bypass)
    return candidate if oracle.fails(candidate) else oracle.best


def _try_bypass(oracle: PartsOracle, state: PassState) -> PassState:
    """Switch to bypassing, if the remaining parts fail that way too."""
    if state.bypass or not oracle.fails(PartSelection(state.kept, bypass=True)):
        return state
    return replace(state, bypass=True)


def _finish_if_pinned_fail(oracle: PartsOracle, state: PassState) -> PassState:
    """Finish the search for parts if the pinned parts fail alone, or no part is free."""
    candidate = PartSelection(state.pinned, state.bypass)
    if not state.free or (state.pinned and oracle.fails(candidate)):
        return replace(state, free=(), candidate=candidate)
    return state


def _pin_last(problem: PartsProblem, oracle: PartsOracle, state: PassState) -> PassState:
    """Pin one part. It bisects nested sets: the pinned parts, then their closure with more and more free parts.

    With bypassing, one more free part may add several connecting parts; these are bisected too.
    """
    free, whole = state.free, state.kept
    chain = _NestedSets(problem, state, whole)
    place = _bisect_least(
        oracle,
        lambda n: PartSelection(chain[n], state.bypass),
        low=-1 if chain.closure_grows else 0,
        high=len(free),
        share=_SPLIT_SHARE,
        gallop=_dense(state),
    )
    below = chain[place - 1]
    gained = sorted(chain[place] - below)
    count = _bisect_least(oracle, lambda n: PartSelection(below.union(gained[:n]), state.bypass), 0, len(gained))
    last = gained[count - 1]
    left = below.union(gained[: count - 1]) - state.pinned
    after = replace(
        state,
        free=tuple(sorted(left)),
        pinned=state.pinned | {last},
        gaps=(*state.gaps, len(free) - place + 1),
    )
    return _try_bypass(oracle, after) if _is_adjacent(problem, last, state.pinned) else after


class _NestedSets:
    """Nested sets by number: -1 is the pinned parts, 0 their closure, n the closure with the first n free parts."""

    def __init__(self, problem: PartsProblem, state: PassState, whole: frozenset[int]) -> None:
        self._problem, self._state, self._whole = problem, state, whole

    @property
    def closure_grows(self) -> bool:
        """Whether the closure of the pinned parts has more parts."""
        return self[0] != self._state.pinned

    def __getitem__(self, place: int) -> frozenset[int]:
        if place < 0:
            return self._state.pinned
        chosen = self._state.pinned.union(self._state.free[:place])
        if not self._state.bypass:
            return chosen
        return self._problem.closure(chosen) & self._whole


def _is_adjacent(problem: PartsProblem, part: int, pinned: frozenset[int]) -> bool:
    """Whether a part is adjacent to a pinned one. If so, the connection probably matters, and bypassing is tried."""
    return bool(problem.producers(part) & pinned) or any(part in problem.producers(other) for other in pinned)


def _dense(state: PassState) -> bool:
    recent = state.gaps[-3:]
    return len(state.gaps) >= _MIN_DENSE_PINS and sum(recent) * _DENSE_SHARE < len(state.free) * len(recent) * 2


def _bisect_least(
    oracle: PartsOracle,
    make: Callable[[int], PartSelection],
    low: int,
    high: int,
    share: float = 0.5,
    gallop: bool = False,
) -> int:
    """The smallest n in (low, high] for which make(n) fails, if make(high) fails and make(low) passes.

    `share` is where in the interval to probe; `gallop` starts with exponential steps down from `high`.
    """
    step = 1
    while gallop and high - step > low:
        if not oracle.fails(make(high - step)):
            low = high - step
            break
        high, step = high - step, step * 2
    while high - low > 1:
        probes = _probe_points(low, high, oracle.width) if oracle.width > 1 else [_split_point(low, high, share)]
        for probe, failed in zip(probes, oracle.fails_each([make(n) for n in probes]), strict=True):
            if failed:
                high = probe
                break
            low = probe
    return high


def _split_point(low: int, high: int, share: float) -> int:
    """A probe at about `share` of the interval, limited so that neither side needs more trials than with halving."""
    length = high - low
    side = 1 << ((length - 1).bit_length() - 1)
    return low + min(max(round(length * share), length - side, 1), side, length - 1)


def _probe_points(low: int, high: int, width: int) -> list[int]:
    """Points that divide (low, high) evenly, one for each parallel trial."""
    count = min(width, high - low - 1)
    return sorted({low + (high - low) * (i + 1) // (count + 1) for i in range(count)} - {low, high})


def _without(problem: PartsProblem, candidate: PartSelection, part: int) -> Iterator[PartSelection]:
    """Every way to remove one part. The empty candidate is not tried."""
    kept = candidate.kept - {part}
    if not kept:
        return
    yield replace(candidate, kept=kept)
    if not candidate.bypass:
        return
    yield replace(candidate, kept=kept, cut=candidate.cut | {part})
    for route in problem.routes(part):
        yield replace(candidate, kept=kept, routes=candidate.routes | {(part, route)})
