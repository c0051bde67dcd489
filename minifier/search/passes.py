"""The passes of a reduction: each turns a failing state into a failing state that is no larger.

The main idea is bisection with pinning. The shortest failing prefix ends with a part that is necessary in it. Pin that
part, drop all parts after it, and look for the last necessary part before it. k of N parts take about k log2 N trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from minifier.search.oracle import Oracle
from minifier.search.problem import Candidate, PartsProblem

__all__ = ["Pass", "State", "WholeOnlyError", "connection", "pairs", "pin", "prefix", "suffix", "sweep", "witnesses"]

# Pairs cost n(n-1)/2 trials: 6 for four parts. For more parts they cost more than they gained in measurements.
_FEW = 4
# The last of several parts is more likely in the upper half. Measured over 20,000 random choices of 5 parts of 1,000:
# a share of 0.6 (limited to the worst case of halving) takes 56.77 trials on average and more than 60 in 0.3% of the
# cases; a share of 0.5 takes 57.18, and more than 60 in 2.4%.
_UPPER = 0.6
# After several necessary parts close together the next one is probably near: gallop away from the last one.
_DENSE_PINS = 6
_DENSE_SHARE = 64

Asking = Oracle[Candidate]


class WholeOnlyError(Exception):
    """Ends a search in which the graph rebuilt from all parts does not fail."""


@dataclass(frozen=True, slots=True)
class State:
    """The state between two passes: `pinned` and `free` parts together fail.

    `pinned` parts are probably necessary; `free` parts, in order, are undecided.
    """

    free: tuple[int, ...]
    pinned: frozenset[int] = frozenset()
    joined: bool = False
    candidate: Candidate | None = None  # set when no part is undecided
    gaps: tuple[int, ...] = ()  # the distances between successive pins, in undecided parts

    @property
    def kept(self) -> frozenset[int]:
        """All parts that are not removed yet."""
        return self.pinned.union(self.free)


Pass = Callable[[PartsProblem, Asking, State], State]


def witnesses(suggested: tuple[frozenset[int], ...]) -> Pass:
    """A pass that tries the caller's suspects: one trial may replace the search."""

    def run(_: PartsProblem, oracle: Asking, state: State) -> State:
        known = frozenset(state.free)
        candidates = [Candidate(parts & known, joined=True) for parts in suggested if parts & known]
        found = oracle.first([c for c in candidates if c.kept != known])
        if found is None:
            return state
        return replace(state, free=tuple(p for p in state.free if p in found.kept), joined=True)

    return run


def prefix(_: PartsProblem, oracle: Asking, state: State) -> State:
    """Find the shortest failing prefix. It comes first as the safest step: a prefix keeps all its dataflow."""
    free = state.free
    end = _least(oracle, lambda n: Candidate(frozenset(free[:n]), state.joined), 0, len(free))
    if end == len(free) and not oracle.fails(Candidate(state.kept, state.joined)):
        raise WholeOnlyError
    state = replace(state, free=free[: end - 1], pinned=frozenset({free[end - 1]}))
    return _settle(oracle, state)


def connection(problem: PartsProblem, oracle: Asking, state: State) -> State:
    """Test whether the pinned parts need their producers: one trial without these.

    The answer decides whether later passes cut or bypass the parts that they remove.
    """
    if state.candidate is not None or state.joined:
        return state
    read = frozenset[int]().union(*(problem.producers(part) for part in state.pinned)).intersection(state.free)
    if not read:
        return state
    if oracle.fails(Candidate(state.kept - read)):
        return replace(state, free=tuple(p for p in state.free if p not in read))
    return _join(oracle, state)


def suffix(_: PartsProblem, oracle: Asking, state: State) -> State:
    """Find the shortest suffix that fails together with the pinned parts: most failures need only a small window."""
    free = state.free
    if state.candidate is not None or not free:
        return state
    count = _least(oracle, lambda n: Candidate(state.pinned.union(free[len(free) - n :]), state.joined), 0, len(free))
    start = len(free) - count
    state = replace(state, free=free[start + 1 :], pinned=state.pinned | {free[start]})
    return _settle(oracle, state)


def pin(problem: PartsProblem, oracle: Asking, state: State) -> State:
    """Pin the last necessary free part, again and again, until the pinned parts fail alone."""
    state = state if state.candidate is not None else _settle(oracle, state)
    while state.candidate is None:
        state = _settle(oracle, _pin_last(problem, oracle, state))
    return state


def sweep(problem: PartsProblem, oracle: Asking, state: State) -> State:
    """Remove single parts until none can be removed: the result is 1-minimal for any oracle.

    Bisection alone guarantees this only for monotone failures, and real failures are not monotone.
    """
    candidate = _verified(oracle, state)
    if candidate is None:  # only the graph as it was given fails
        return replace(state, candidate=None)
    blocked = 0
    order = sorted(candidate.kept, reverse=True)
    while blocked < len(order):
        part = order.pop(0)
        smaller = oracle.first(list(_without(problem, candidate, part)))
        if smaller is None:
            order.append(part)
            blocked += 1
        else:
            candidate, blocked = smaller, 0
    return replace(state, free=(), pinned=candidate.kept, candidate=candidate)


def pairs(problem: PartsProblem, oracle: Asking, state: State) -> State:
    """Remove two parts at once, if few are left: an operation and its inverse can only go together."""
    candidate = state.candidate
    if candidate is None or not 2 < len(candidate.kept) <= _FEW:
        return state
    both = [replace(candidate, kept=candidate.kept.difference(two)) for two in combinations(sorted(candidate.kept), 2)]
    smaller = oracle.first(both)
    if smaller is None:
        return state
    return sweep(problem, oracle, replace(state, pinned=smaller.kept, candidate=smaller))


def _verified(oracle: Asking, state: State) -> Candidate | None:
    """The candidate of the state if it fails, else the best that was tried: switching to bypassing may make it pass."""
    candidate = state.candidate or Candidate(state.kept, state.joined)
    return candidate if oracle.fails(candidate) else oracle.best


def _join(oracle: Asking, state: State) -> State:
    """Switch to bypassing, if the remaining parts fail that way too."""
    if state.joined or not oracle.fails(Candidate(state.kept, joined=True)):
        return state
    return replace(state, joined=True)


def _settle(oracle: Asking, state: State) -> State:
    """Finish the search for parts if the pinned parts fail alone, or no part is free."""
    candidate = Candidate(state.pinned, state.joined)
    if not state.free or (state.pinned and oracle.fails(candidate)):
        return replace(state, free=(), candidate=candidate)
    return state


def _pin_last(problem: PartsProblem, oracle: Asking, state: State) -> State:
    """Pin one part. It bisects nested sets: the pinned parts, then their closure with more and more free parts.

    With bypassing, one more free part may add several connecting parts; these are bisected too.
    """
    free, whole = state.free, state.kept
    chain = _Chain(problem, state, whole)
    place = _least(
        oracle,
        lambda n: Candidate(chain[n], state.joined),
        low=-1 if chain.opens else 0,
        high=len(free),
        share=_UPPER,
        gallop=_dense(state),
    )
    below = chain[place - 1]
    gained = sorted(chain[place] - below)
    count = _least(oracle, lambda n: Candidate(below.union(gained[:n]), state.joined), 0, len(gained))
    last = gained[count - 1]
    left = below.union(gained[: count - 1]) - state.pinned
    after = replace(
        state,
        free=tuple(sorted(left)),
        pinned=state.pinned | {last},
        gaps=(*state.gaps, len(free) - place + 1),
    )
    return _join(oracle, after) if _touches(problem, last, state.pinned) else after


class _Chain:
    """Nested sets by number: -1 is the pinned parts, 0 their closure, n the closure with the first n free parts."""

    def __init__(self, problem: PartsProblem, state: State, whole: frozenset[int]) -> None:
        self._problem, self._state, self._whole = problem, state, whole

    @property
    def opens(self) -> bool:
        """Whether the closure of the pinned parts has more parts."""
        return self[0] != self._state.pinned

    def __getitem__(self, place: int) -> frozenset[int]:
        if place < 0:
            return self._state.pinned
        chosen = self._state.pinned.union(self._state.free[:place])
        if not self._state.joined:
            return chosen
        return self._problem.closure(chosen) & self._whole


def _touches(problem: PartsProblem, part: int, pinned: frozenset[int]) -> bool:
    """Whether a part is adjacent to a pinned one. If so, the connection probably matters, and bypassing is tried."""
    return bool(problem.producers(part) & pinned) or any(part in problem.producers(other) for other in pinned)


def _dense(state: State) -> bool:
    recent = state.gaps[-3:]
    return len(state.gaps) >= _DENSE_PINS and sum(recent) * _DENSE_SHARE < len(state.free) * len(recent) * 2


def _least(
    oracle: Asking,
    make: Callable[[int], Candidate],
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
        probes = _sections(low, high, oracle.width) if oracle.width > 1 else [_split(low, high, share)]
        for probe, failed in zip(probes, oracle.many([make(n) for n in probes]), strict=True):
            if failed:
                high = probe
                break
            low = probe
    return high


def _split(low: int, high: int, share: float) -> int:
    """A probe at about `share` of the interval, limited so that neither side needs more trials than with halving."""
    length = high - low
    side = 1 << ((length - 1).bit_length() - 1)
    return low + min(max(round(length * share), length - side, 1), side, length - 1)


def _sections(low: int, high: int, width: int) -> list[int]:
    """Points that divide (low, high) evenly, one for each parallel trial."""
    count = min(width, high - low - 1)
    return sorted({low + (high - low) * (i + 1) // (count + 1) for i in range(count)} - {low, high})


def _without(problem: PartsProblem, candidate: Candidate, part: int) -> Iterator[Candidate]:
    """Every way to remove one part. The empty candidate is not tried."""
    kept = candidate.kept - {part}
    if not kept:
        return
    yield replace(candidate, kept=kept)
    if not candidate.joined:
        return
    yield replace(candidate, kept=kept, severed=candidate.severed | {part})
    for route in problem.routes(part):
        yield replace(candidate, kept=kept, routes=candidate.routes | {(part, route)})
