"""Which of the compiled graphs, forward or backward, the failure needs. The others stay uncompiled in the search."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.bisect.decisions import DecisionPool
from dynadiag.bisect.hash_search import find_minimal_set
from dynadiag.bisect.trial_search import TrialSearch
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import Plan

__all__ = ["FailingPart", "find_needed_graphs"]

_SPLIT_GRAPHS = ("forward", "backward", "inference")


@dataclass(frozen=True, slots=True)
class FailingPart:
    """A plan that compiles only ``graphs`` and still fails. ``graphs`` is ``None`` where that is all of them."""

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


def find_needed_graphs(search: TrialSearch, base: Plan, seen: Outcome) -> FailingPart:
    """The part of the program that is enough for the failure.

    Where the failure stays with every graph uncompiled, it comes from before Inductor: a pass or decomposition of
    AOTAutograd. Where the failure names its decision, no search is needed.
    """
    points = {p.key: p for p in seen.points if p.group == "graph"}
    graphs = DecisionPool(search, base, "graph", points)
    if len(points) < 2 or seen.witness or not graphs.run_without(points).passed:
        return FailingPart(base)
    needed = find_minimal_set(points, graphs.fails_with_only, graphs.speculate)
    if len(needed) == len(points):
        return FailingPart(base)
    return FailingPart(graphs.plan_with_only(needed), _in_order(points, needed))


def _in_order(points: dict[str, Decision], chosen: frozenset[str]) -> tuple[Decision, ...]:
    return tuple(point for key, point in points.items() if key in chosen)
