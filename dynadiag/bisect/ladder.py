"""The ladder: at which rung of the compiler the failure begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisect.search import Search
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import RUNGS, Plan

__all__ = ["CLASSES", "Climb", "climb", "ladder", "plan_at", "top_rung"]

CLASSES = (
    "kernel",
    "fusion",
    "lowering",
    "pattern",
    "pass",
    "decomposition",
    "cudagraphs",
    "graph",
    "dynamo_graph",
    "frame",
)  # of decisions, latest first


@dataclass(frozen=True, slots=True)
class Climb:
    """``rungs`` is the status of each; ``first`` the first that fails as sought, with its outcome."""

    rungs: dict[str, str]
    first: str | None
    outcome: Outcome | None


def top_rung(backends: Iterable[str]) -> str | None:
    """The rung that a program with these backends is written for: the highest of them. None without any."""
    ranks = [RUNGS.index(name) if name in RUNGS else len(RUNGS) - 1 for name in backends]
    return RUNGS[max(ranks)] if ranks else None


def ladder(top: str, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The rungs to try, lowest first: those up to the program's own."""
    reachable = [rung for rung in RUNGS[: RUNGS.index(top) + 1] if rung != "triton"]
    return tuple(rung for rung in reachable if wanted is None or rung in wanted)


def climb(search: Search, base: Plan, rungs: Sequence[str]) -> Climb:
    """Tries rung after rung until one shows the failure. One that fails in another way is a side find."""
    statuses = dict.fromkeys(RUNGS, "not_run")
    for rung in rungs:
        outcome = search.trial(plan_at(base, rung), rung, across_rungs=True)
        statuses[rung] = search.status(outcome, across_rungs=True)
        if statuses[rung] == "same":
            return Climb(statuses, rung, outcome)
        if outcome.passed and search.reference is not None and search.reference.kind == "hang":
            search.shorten_limit()
    return Climb(statuses, None, None)


def plan_at(base: Plan, rung: str) -> Plan:
    """A rung, telling every decision that the descent may want to turn off: that costs no trial of its own."""
    return replace(base, rung=rung, caches=False, record=CLASSES)
