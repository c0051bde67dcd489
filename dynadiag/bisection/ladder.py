"""The ladder: at which rung of the compiler the failure begins."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisection.trial_search import LabeledPlan, TrialSearch
from dynadiag.trial.decision_kinds import REPORTED_KINDS
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import RUNGS, Plan


@dataclass(frozen=True, slots=True)
class LadderResult:
    """The status of each rung, and the ``first`` that shows the failure, with its outcome."""

    rungs: dict[str, str]
    first: str | None
    outcome: Outcome | None
    notes: tuple[str, ...] = ()


def top_rung(backends: Iterable[str]) -> str | None:
    """The highest rung among a program's backends; ``None`` without backends."""
    ranks = [RUNGS.index(name) if name in RUNGS else len(RUNGS) - 1 for name in backends]
    return RUNGS[max(ranks)] if ranks else None


def rungs_to_try(top: str, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The rungs to try, lowest first: those up to the program's own, and Triton's where it was asked for."""
    if wanted is None:
        return tuple(rung for rung in RUNGS[: RUNGS.index(top) + 1] if rung != TRITON)
    return tuple(rung for rung in RUNGS if rung in wanted and (rung == TRITON or RUNGS.index(rung) <= RUNGS.index(top)))


def run_ladder(
    search: TrialSearch, base: Plan, rungs: Sequence[str], record: tuple[str, ...] = REPORTED_KINDS
) -> LadderResult:
    """Try one rung after another until one shows the failure. Other failures on the way are noted.

    Where Inductor shows it and the triton rung was asked for, that is tried too: it shows whether the failure is
    specific to one code generator.
    """
    statuses = dict.fromkeys(RUNGS, "not_run")
    notes: list[str] = []
    for rung in rungs:
        outcome, statuses[rung] = _try_rung(search, labeled_rung(base, rung, record), notes)
        if statuses[rung] == "same":
            if rung == "inductor" and TRITON in rungs:
                _, statuses[TRITON] = _try_rung(search, labeled_rung(base, TRITON, record), notes)
            return LadderResult(statuses, rung, outcome, tuple(notes))
        search.shorten_limit(outcome)
    return LadderResult(statuses, None, None, tuple(notes))


def _try_rung(search: TrialSearch, candidate: LabeledPlan, notes: list[str]) -> tuple[Outcome, str]:
    """The outcome at a rung and its status. The triton rung passes only where a Triton kernel ran."""
    outcome = search.run(*candidate)
    reason = not_run_reason(outcome) if candidate.plan.rung == TRITON else None
    if reason is None:
        return outcome, search.status(outcome, across_rungs=True)
    notes.append(reason)
    return outcome, "not_run"


def labeled_rung(base: Plan, rung: str, record: tuple[str, ...] = REPORTED_KINDS) -> LabeledPlan:
    """The trial of a rung."""
    return LabeledPlan(rung_plan(base, rung, record), rung, across_rungs=True)


def rung_plan(base: Plan, rung: str, record: tuple[str, ...] = REPORTED_KINDS) -> Plan:
    """The plan of a rung. It reports every kind of decision that the descent may switch off, which costs no trial."""
    return replace(base, rung=rung, caches=False, record=record)


TRITON = "triton"


def missing_reason() -> str | None:
    """Why Triton kernels cannot be generated and interpreted here, or ``None``."""
    if importlib.util.find_spec("triton") is None:
        return "the triton rung was not run: Triton is not installed (pip install triton)"
    return None


def not_run_reason(outcome: Outcome) -> str | None:
    """Why a trial that passed says nothing about Triton's code generator, or ``None``: no kernel ran."""
    facts = outcome.facts
    if not outcome.passed or facts.launches or facts.cuda:
        return None
    others = sorted({name for name in facts.backends if name != "inductor"})
    if not facts.backends:
        reason = "nothing was compiled"
    elif others:
        reason = f"its graphs go to {', '.join(others)}, and no Triton kernel was run"
    else:
        reason = "its graphs call libraries only, and no kernel was generated"
    return f"the triton rung was not run: {reason}"
