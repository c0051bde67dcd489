"""Whether the forward or the backward of a graph is at fault, at the rungs that compile both as one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dynadiag.bisect.decisions import DecisionPool
from dynadiag.bisect.hash_search import suffixes
from dynadiag.trial.plan import Plan, Switch

__all__ = ["Direction", "find_direction"]

_BOTH = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class Direction:
    """A direction of a graph, with the plan that takes only it from the rung below, and the plan for only the other
    one.
    """

    name: str
    plan_without: Plan
    plan_without_other: Plan


def find_direction(graphs: DecisionPool, key: str) -> Direction | None:
    """The direction of a graph that the failure comes from; ``None`` where it needs both, or either is enough."""
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
