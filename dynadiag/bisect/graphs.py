"""Which of the compiled graphs, forward or backward, the failure needs. The others stay uncompiled in the search."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.bisect.decisions import Decisions
from dynadiag.bisect.hashsearch import minimal_set
from dynadiag.bisect.search import Search
from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.plan import Plan

__all__ = ["Part", "needed_graphs"]

_INNER = ("forward", "backward", "inference")


@dataclass(frozen=True, slots=True)
class Part:
    """A plan that compiles only ``graphs`` and still fails. ``graphs`` is ``None`` where that is all of them."""

    plan: Plan
    graphs: tuple[Point, ...] | None = None

    def holds(self, point: Point) -> bool:
        """Whether a decision belongs to one of the graphs. One before the split into forward and backward belongs to
        both.
        """
        if self.graphs is None:
            return True
        kinds = {graph.graph for graph in self.graphs if graph.compile_id == point.compile_id}
        return bool(kinds) and (point.graph not in _INNER or point.graph in kinds)


def needed_graphs(search: Search, base: Plan, seen: Outcome) -> Part:
    """The part of the program that is enough for the failure.

    Where the failure stays with every graph uncompiled, it comes from before Inductor: a pass or decomposition of
    AOTAutograd. Where the failure names its decision, no search is needed.
    """
    points = {p.key: p for p in seen.points if p.group == "graph"}
    graphs = Decisions(search, base, "graph", points)
    if len(points) < 2 or seen.witness or not graphs.off(points).passed:
        return Part(base)
    needed = minimal_set(points, graphs.fails_with_only, graphs.ahead)
    if len(needed) == len(points):
        return Part(base)
    return Part(graphs.only(needed), _in_order(points, needed))


def _in_order(points: dict[str, Point], chosen: frozenset[str]) -> tuple[Point, ...]:
    return tuple(point for key, point in points.items() if key in chosen)
