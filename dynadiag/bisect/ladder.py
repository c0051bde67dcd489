"""The ladder: at which rung of the compiler the failure begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisect.search import Candidate, Search
from dynadiag.bisect.triton import TRITON, idle
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import RUNGS, Plan

__all__ = ["CLASSES", "Climb", "candidate_at", "climb", "ladder", "plan_at", "top_rung"]

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
    "operator",
)  # of decisions, in the order of the compiler, latest first


@dataclass(frozen=True, slots=True)
class Climb:
    """The status of each rung, and the ``first`` that shows the failure, with its outcome."""

    rungs: dict[str, str]
    first: str | None
    outcome: Outcome | None
    notes: tuple[str, ...] = ()


def top_rung(backends: Iterable[str]) -> str | None:
    """The highest rung among a program's backends; ``None`` without backends."""
    ranks = [RUNGS.index(name) if name in RUNGS else len(RUNGS) - 1 for name in backends]
    return RUNGS[max(ranks)] if ranks else None


def ladder(top: str, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The rungs to try, lowest first: those up to the program's own, and Triton's where it was asked for."""
    if wanted is None:
        return tuple(rung for rung in RUNGS[: RUNGS.index(top) + 1] if rung != TRITON)
    return tuple(rung for rung in RUNGS if rung in wanted and (rung == TRITON or RUNGS.index(rung) <= RUNGS.index(top)))


def climb(search: Search, base: Plan, rungs: Sequence[str], record: tuple[str, ...] = CLASSES) -> Climb:
    """Try one rung after another until one shows the failure. Other failures on the way are noted.

    Where Inductor shows it and the triton rung was asked for, that is tried too: it shows whether the failure is
    specific to one code generator.
    """
    statuses = dict.fromkeys(RUNGS, "not_run")
    notes: list[str] = []
    for rung in rungs:
        outcome, statuses[rung] = _tried(search, candidate_at(base, rung, record), notes)
        if statuses[rung] == "same":
            if rung == "inductor" and TRITON in rungs:
                _, statuses[TRITON] = _tried(search, candidate_at(base, TRITON, record), notes)
            return Climb(statuses, rung, outcome, tuple(notes))
        if outcome.passed and search.reference is not None and search.reference.kind == "hang":
            search.shorten_limit()
    return Climb(statuses, None, None, tuple(notes))


def _tried(search: Search, candidate: Candidate, notes: list[str]) -> tuple[Outcome, str]:
    """The outcome at a rung and its status. The triton rung passes only where a Triton kernel ran."""
    outcome = search.trial(*candidate)
    reason = idle(outcome) if candidate.plan.rung == TRITON else None
    if reason is None:
        return outcome, search.status(outcome, across_rungs=True)
    notes.append(reason)
    return outcome, "not_run"


def candidate_at(base: Plan, rung: str, record: tuple[str, ...] = CLASSES) -> Candidate:
    """The trial of a rung."""
    return Candidate(plan_at(base, rung, record), rung, across_rungs=True)


def plan_at(base: Plan, rung: str, record: tuple[str, ...] = CLASSES) -> Plan:
    """The plan of a rung. It reports every kind of decision that the descent may switch off, which costs no trial."""
    return replace(base, rung=rung, caches=False, record=record)
