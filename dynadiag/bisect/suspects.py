"""Tries the decisions on the nodes where a compiled graph first diverges, or fails, before all others.

Where that is right it saves the bisection of everything that the compiler decided, and each trial recompiles only the
kernel in question. Where it is wrong, one or two trials are lost and the whole search follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynadiag.bisect.decisions import Decisions, by_bisection
from dynadiag.bisect.hashsearch import minimal_set, suffixes
from dynadiag.bisect.search import Candidate, Search
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import INTERMEDIATES, Plan, Switch

__all__ = ["suspected"]

_LATER = ("kernel", "fusion")  # kinds later than the lowerings: if they explain the failure, they are the answer


def suspected(search: Search, base: Plan, seen: Outcome) -> tuple[Decisions, list[frozenset[str]]] | None:
    """Minimal failing sets of the kind that explains the failure; ``None`` where the divergence leads to none.

    ``seen`` is an outcome of ``base`` with every kind reported.
    """
    if seen.witness or not any(p.group == "lowering" for p in seen.points):
        return None
    compared = Candidate(
        replace(base, record=(INTERMEDIATES,)), "each kernel's values compared with the uncompiled graph's"
    )
    search.together([compared])  # fills the idle core
    outcome = search.trial(*compared)
    lowerings = _decisions(search, base, "lowering", seen)
    near = [key for key in lowerings.points if key in outcome.diverged]
    if not near:
        return None
    later = [_decisions(search, base, name, seen) for name in _LATER]
    chosen = [_about(outcome.diverged, these) for these in later]
    these_off = [_all_off(later, chosen)] if any(chosen) else []
    surely = [lowerings.with_off(near)] if len(near) == 1 else []  # of several it is unknown which
    search.together([lowerings.with_only(near), *surely, *these_off])
    if not lowerings.fails_with_only(frozenset(near)):
        return None
    if these_off and search.trial(*these_off[0]).passed:
        each = [(these, keys) for these, keys in zip(later, chosen, strict=True) if keys]
        search.together(these.with_off(keys) for these, keys in each)  # either may be the one
        for these, keys in each:
            if these.off(keys).passed:
                found = _minimal(these, keys)
                search.together(these.halves(found))
                return these, by_bisection(these, [found])
    return lowerings, by_bisection(lowerings, [minimal_set(near, lowerings.fails_with_only, lowerings.ahead)])


def _decisions(search: Search, base: Plan, name: str, seen: Outcome) -> Decisions:
    return Decisions(search, base, name, {p.key: p for p in seen.points if p.group == name})


def _about(diverged: Sequence[str], these: Decisions) -> list[str]:
    """The decisions of a kind on one of these nodes."""
    prefix = diverged[0].rpartition("/")[0]
    names = {key.rpartition("/")[2] for key in diverged}
    points = (p for p in these.points.values() if f"{p.compile_id}/{p.graph}" == prefix)
    return [p.key for p in points if names.intersection(p.name.split("+"))]


def _all_off(classes: Sequence[Decisions], chosen: Sequence[list[str]]) -> Candidate:
    base = classes[0].base
    pairs = [(these, keys) for these, keys in zip(classes, chosen, strict=True) if keys]
    switches = (Switch(these.name, False, suffixes(keys, these.points)) for these, keys in pairs)
    plan = replace(base, switches=(*base.switches, *switches))
    return Candidate(plan, "off at the divergence: " + ", ".join(these.name for these, _ in pairs))


def _minimal(these: Decisions, keys: Sequence[str]) -> frozenset[str]:
    """Those of ``keys`` that must stay on. Decisions elsewhere stay on: off, they would mean many new kernels."""
    every = frozenset(keys)
    fails = lambda on: these.search.status(these.off(every - on)) == "same"  # noqa: E731
    return minimal_set(keys, fails, these.search.ahead(lambda on: these.with_off(every - on), these.with_off))
