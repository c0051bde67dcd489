"""Narrows the search before and after it: where to look first, which graphs are needed, which direction is at fault.

- The decisions on the nodes where a compiled graph first diverges, or fails, are tried before all others. If that is
  right it saves the bisection of everything that the compiler decided, and each trial recompiles only the kernel in
  question. If it is wrong, one or two trials are lost and the whole search follows.
- Graphs (forward or backward) that the failure does not need stay uncompiled during the search.
- At the rungs that compile forward and backward as one, a culprit is narrowed to one of them, and to nodes of Dynamo's
  graph: the shortest run of them that fails if it is compiled by itself, with those before and after it uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisection.decisions import DecisionPool, find_by_bisection
from dynadiag.bisection.hash_search import find_minimal_set, suffixes
from dynadiag.bisection.trial_search import LabeledPlan, TrialSearch
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import INTERMEDIATES, Plan, Switch

_LATER_KINDS = ("kernel", "fusion")  # kinds later than the lowerings: if they explain the failure, they are the answer


def find_suspects(
    search: TrialSearch, base: Plan, recorded: Outcome
) -> tuple[DecisionPool, list[frozenset[str]]] | None:
    """Minimal failing sets of the kind that explains the failure; ``None`` if the divergence leads to none.

    ``recorded`` is an outcome of ``base`` with every kind reported.
    """
    if recorded.witness or not any(p.group == "lowering" for p in recorded.points):
        return None
    compared = compared_values(base)
    search.run_many([compared])  # fills the idle core
    outcome = search.run(*compared)
    lowerings = _decisions(search, base, "lowering", recorded)
    suspects = [key for key in lowerings.points if key in outcome.diverged]
    if not suspects:
        return None
    later = [_decisions(search, base, name, recorded) for name in _LATER_KINDS]
    chosen = [_decisions_on(outcome.diverged, pool) for pool in later]
    these_off = [_without_all(later, chosen)] if any(chosen) else []
    single = [lowerings.labeled_without(suspects)] if len(suspects) == 1 else []  # of several it is unknown which
    search.run_many([lowerings.labeled_with_only(suspects), *single, *these_off])
    if not lowerings.fails_with_only(frozenset(suspects)):
        return None
    if these_off and search.run(*these_off[0]).passed:
        each = [(pool, keys) for pool, keys in zip(later, chosen, strict=True) if keys]
        search.run_many(pool.labeled_without(keys) for pool, keys in each)  # either may be the one
        for pool, keys in each:
            if pool.run_without(keys).passed:
                found = _minimize(pool, keys)
                search.run_many(pool.verification_trials(found))
                return pool, find_by_bisection(pool, [found])
    return lowerings, find_by_bisection(
        lowerings, [find_minimal_set(suspects, lowerings.fails_with_only, lowerings.speculate)]
    )


def compared_values(base: Plan) -> LabeledPlan:
    """The trial in which each kernel's values are compared with those of the uncompiled graph."""
    return LabeledPlan(
        replace(base, record=(INTERMEDIATES,)), "each kernel's values compared with the uncompiled graph's"
    )


def describe_diverged_value(outcome: Outcome) -> tuple[str, ...]:
    """A note on the first value that diverges in that trial; no note where the failure is not one of values."""
    if not outcome.diverged_value:
        return ()
    prefix, _, _ = outcome.diverged[0].rpartition("/")
    compile_id, _, graph = prefix.rpartition("/")
    return (
        f"the first stored value that diverges is {outcome.diverged_value} ({graph} of compile {compile_id}): it is "
        "further off than rounding explains",
    )


def _decisions(search: TrialSearch, base: Plan, name: str, recorded: Outcome) -> DecisionPool:
    return DecisionPool(search, base, name, {p.key: p for p in recorded.points if p.group == name})


def _decisions_on(diverged: Sequence[str], pool: DecisionPool) -> list[str]:
    """The decisions of a kind on one of these nodes."""
    prefix = diverged[0].rpartition("/")[0]
    names = {key.rpartition("/")[2] for key in diverged}
    points = (p for p in pool.points.values() if f"{p.compile_id}/{p.graph}" == prefix)
    return [p.key for p in points if names.intersection(p.name.split("+"))]


def _without_all(pools: Sequence[DecisionPool], chosen: Sequence[list[str]]) -> LabeledPlan:
    base = pools[0].base
    pairs = [(pool, keys) for pool, keys in zip(pools, chosen, strict=True) if keys]
    switches = (Switch(pool.name, False, suffixes(keys, pool.points)) for pool, keys in pairs)
    plan = replace(base, switches=(*base.switches, *switches))
    return LabeledPlan(plan, "off at the divergence: " + ", ".join(pool.name for pool, _ in pairs))


def _minimize(pool: DecisionPool, keys: Sequence[str]) -> frozenset[str]:
    """Those of ``keys`` that must stay on. Other decisions stay on: switching them off would mean many new kernels."""
    every = frozenset(keys)
    fails = lambda on: pool.search.status(pool.run_without(every - on)) == "same"  # noqa: E731
    return find_minimal_set(
        keys, fails, pool.search.speculate(lambda on: pool.labeled_without(every - on), pool.labeled_without)
    )


def find_inlined_value(lowerings: DecisionPool, keys: frozenset[str]) -> tuple[DecisionPool, frozenset[str]] | None:
    """For lowerings that only fail together: the values that must not be stored for the failure to show.

    Each lowering of a chain computes the one before it inside its own kernel. So with any of them off the chain is cut,
    and all of them look guilty. If the failure goes with all lowerings on and one value stored in between, as its
    dtype, that link is the answer. ``None`` if storing values does not help.
    """
    search, base = lowerings.search, lowerings.base
    plan = replace(base, record=("inline",), switches=(*base.switches, Switch("inline", keep=True, suffixes=())))
    stored = search.run(plan, "every value stored before it is read")
    points = {p.key: p for p in stored.points if p.group == "inline"}
    links = [key for key in points if key in keys]
    pool = DecisionPool(search, base, "inline", points)
    if not stored.passed or not links or not pool.run_without(links).passed:
        return None
    return pool, _minimize(pool, links)


_SPLIT_GRAPHS = ("forward", "backward", "inference")


@dataclass(frozen=True, slots=True)
class FailingPart:
    """A plan that compiles only ``graphs`` and still fails. ``graphs`` is ``None`` if that is all of them."""

    plan: Plan
    graphs: tuple[Decision, ...] | None = None

    def contains(self, point: Decision) -> bool:
        """Whether a decision belongs to one of the graphs. One before the split into forward and backward belongs to
        both.
        """
        if self.graphs is None:
            return True
        kinds = {graph.graph for graph in self.graphs if graph.compile_id == point.compile_id}
        return bool(kinds) and (point.graph not in _SPLIT_GRAPHS or point.graph in kinds)


def find_needed_graphs(search: TrialSearch, base: Plan, recorded: Outcome) -> FailingPart:
    """The part of the program that is enough for the failure. If the failure stays with every graph uncompiled, it
    comes from before Inductor: a pass or decomposition of AOTAutograd. If the failure names its decision, no search is
    needed.
    """
    points = {p.key: p for p in recorded.points if p.group == "graph"}
    graphs = DecisionPool(search, base, "graph", points)
    if len(points) < 2 or recorded.witness or not graphs.run_without(points).passed:
        return FailingPart(base)
    needed = find_minimal_set(points, graphs.fails_with_only, graphs.speculate)
    if len(needed) == len(points):
        return FailingPart(base)
    return FailingPart(graphs.plan_with_only(needed), _in_order(points, needed))


def _in_order(points: dict[str, Decision], chosen: frozenset[str]) -> tuple[Decision, ...]:
    return tuple(point for key, point in points.items() if key in chosen)


_BOTH = ("forward", "backward")
_MAX_INLINED = 4  # functions, one inside the other


@dataclass(frozen=True, slots=True)
class Direction:
    """A direction of a graph, with the plan that takes only it from the rung below, and the plan for only the other
    one.
    """

    name: str
    plan_without: Plan
    plan_without_other: Plan


def find_direction(graphs: DecisionPool, key: str) -> Direction | None:
    """The direction of a graph that the failure comes from; ``None`` if it needs both, or either is enough."""
    plans = {name: _without(graphs, f"{key}/{name}") for name in _BOTH}
    status = {name: _status(graphs, plan, name) for name, plan in plans.items()}
    for name, other in (_BOTH, _BOTH[::-1]):
        if (status[name], status[other]) == ("pass", "same"):
            return Direction(name, plans[name], plans[other])
    return None


def _without(graphs: DecisionPool, key: str) -> Plan:
    every = [f"{graph}/{name}" for graph in graphs.points for name in _BOTH]
    switch = Switch("direction", keep=False, suffixes=suffixes([key], every))
    return replace(graphs.base, switches=(*graphs.base.switches, switch))


def _status(graphs: DecisionPool, plan: Plan, name: str) -> str:
    return graphs.search.status(graphs.search.run(plan, f"off: its {name}"))


def find_inlined_frames(frames: DecisionPool, key: str) -> list[Decision]:
    """The functions that a frame at fault calls, one inside the other, of which each fails if it is compiled by itself
    and its callers are left to Python.
    """
    known, found = dict(frames.points), [frames.points[key]]
    while len(found) <= _MAX_INLINED:
        outside = DecisionPool(frames.search, frames.base, "frame", known)
        calls = frames.search.run(*outside.labeled_callees(point.key for point in found))
        new = {p.key: p for p in calls.points if p.group == "frame" and p.key not in known}
        known |= new
        inside = DecisionPool(frames.search, frames.base, "frame", known)
        if frames.search.status(calls) != "same" or not new or not inside.fails_with_only(frozenset(new)):
            break
        chosen = find_minimal_set(list(new), inside.fails_with_only, inside.speculate)
        if len(chosen) > 1:
            break
        found += [known[one] for one in chosen]
    return found[1:]


def find_nodes(graphs: DecisionPool, key: str, recorded: Outcome) -> tuple[DecisionPool, frozenset[str]] | None:
    """The nodes of Dynamo's graph that the failure of a compiled graph needs; ``None`` if that is all of them.

    They are a run: to leave a node out within it would compile two graphs. Its end is searched for first, then its
    beginning.
    """
    compile_id = graphs.points[key].compile_id
    points = {p.key: p for p in recorded.points if p.group == "node" and p.compile_id == compile_id}
    order = list(points)
    pool = DecisionPool(graphs.search, graphs.plan_with_only({key}), "node", points)
    end = _smallest_count(len(order), lambda count: pool.fails_with_only(frozenset(order[:count])))
    left = _smallest_count(end, lambda count: pool.fails_with_only(frozenset(order[end - count : end])))
    return (pool, frozenset(order[end - left : end])) if 0 < left < len(order) else None


def _smallest_count(most: int, holds: Callable[[int], bool]) -> int:
    """The least count up to ``most`` for which ``holds`` is true, if it is true of all larger ones."""
    low, high = 0, most  # it does not hold for `low`, and does for `high`
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
