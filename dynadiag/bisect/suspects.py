"""Tries the decisions on the nodes where a compiled graph first diverges, or fails, before all others.

Where that is right it saves the bisection of everything that the compiler decided, and each trial recompiles only the
kernel in question. Where it is wrong, one or two trials are lost and the whole search follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynadiag.bisect.decisions import DecisionPool, find_by_bisection
from dynadiag.bisect.hash_search import find_minimal_set, suffixes
from dynadiag.bisect.trial_search import LabeledPlan, TrialSearch
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import INTERMEDIATES, Plan, Switch

__all__ = ["find_suspects"]

_LATER_KINDS = ("kernel", "fusion")  # kinds later than the lowerings: if they explain the failure, they are the answer


def find_suspects(search: TrialSearch, base: Plan, seen: Outcome) -> tuple[DecisionPool, list[frozenset[str]]] | None:
    """Minimal failing sets of the kind that explains the failure; ``None`` where the divergence leads to none.

    ``seen`` is an outcome of ``base`` with every kind reported.
    """
    if seen.witness or not any(p.group == "lowering" for p in seen.points):
        return None
    compared = LabeledPlan(
        replace(base, record=(INTERMEDIATES,)), "each kernel's values compared with the uncompiled graph's"
    )
    search.run_many([compared])  # fills the idle core
    outcome = search.run(*compared)
    lowerings = _decisions(search, base, "lowering", seen)
    near = [key for key in lowerings.points if key in outcome.diverged]
    if not near:
        return None
    later = [_decisions(search, base, name, seen) for name in _LATER_KINDS]
    chosen = [_decisions_on(outcome.diverged, these) for these in later]
    these_off = [_without_all(later, chosen)] if any(chosen) else []
    surely = [lowerings.labeled_without(near)] if len(near) == 1 else []  # of several it is unknown which
    search.run_many([lowerings.labeled_with_only(near), *surely, *these_off])
    if not lowerings.fails_with_only(frozenset(near)):
        return None
    if these_off and search.run(*these_off[0]).passed:
        each = [(these, keys) for these, keys in zip(later, chosen, strict=True) if keys]
        search.run_many(these.labeled_without(keys) for these, keys in each)  # either may be the one
        for these, keys in each:
            if these.run_without(keys).passed:
                found = _minimize(these, keys)
                search.run_many(these.verification_trials(found))
                return these, find_by_bisection(these, [found])
    return lowerings, find_by_bisection(
        lowerings, [find_minimal_set(near, lowerings.fails_with_only, lowerings.speculate)]
    )


def _decisions(search: TrialSearch, base: Plan, name: str, seen: Outcome) -> DecisionPool:
    return DecisionPool(search, base, name, {p.key: p for p in seen.points if p.group == name})


def _decisions_on(diverged: Sequence[str], these: DecisionPool) -> list[str]:
    """The decisions of a kind on one of these nodes."""
    prefix = diverged[0].rpartition("/")[0]
    names = {key.rpartition("/")[2] for key in diverged}
    points = (p for p in these.points.values() if f"{p.compile_id}/{p.graph}" == prefix)
    return [p.key for p in points if names.intersection(p.name.split("+"))]


def _without_all(classes: Sequence[DecisionPool], chosen: Sequence[list[str]]) -> LabeledPlan:
    base = classes[0].base
    pairs = [(these, keys) for these, keys in zip(classes, chosen, strict=True) if keys]
    switches = (Switch(these.name, False, suffixes(keys, these.points)) for these, keys in pairs)
    plan = replace(base, switches=(*base.switches, *switches))
    return LabeledPlan(plan, "off at the divergence: " + ", ".join(these.name for these, _ in pairs))


def _minimize(these: DecisionPool, keys: Sequence[str]) -> frozenset[str]:
    """Those of ``keys`` that must stay on. Decisions elsewhere stay on: off, they would mean many new kernels."""
    every = frozenset(keys)
    fails = lambda on: these.search.status(these.run_without(every - on)) == "same"  # noqa: E731
    return find_minimal_set(
        keys, fails, these.search.speculate(lambda on: these.labeled_without(every - on), these.labeled_without)
    )
