"""The decisions of one kind, and the search among them: by what the failure names, else by hash bisection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisect.culprits import plural, shown
from dynadiag.bisect.hashsearch import Ahead, culprit_sets, minimal_set, suffixes
from dynadiag.bisect.search import Candidate, Search
from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.plan import Plan, Switch

__all__ = ["Decisions", "all_off", "by_bisection", "by_witness", "union"]

_SETS = 16  # independent faults in one kind before the search gives up
_LISTED = 3  # names in a trial's label
_WITNESSES = 6  # names that are tried one after another before bisection starts


@dataclass(slots=True)
class Decisions:
    """The decisions of one kind, and trials with some of them switched off.

    ``base`` may have switches for other kinds, which stay. ``name`` is the kind, ``points`` has its decisions by key.
    ``reported`` are the kinds that each trial reports: a failure that kills its process can name a decision in no other
    way.
    """

    search: Search
    base: Plan
    name: str
    points: dict[str, Point]
    told: tuple[str, ...] = ()

    def only(self, keys: Collection[str]) -> Plan:
        """The plan with exactly these on."""
        return self._switched(Switch(self.name, keep=True, suffixes=suffixes(keys, self.points)))

    def without(self, keys: Collection[str]) -> Plan:
        """The plan with exactly these off. Off with a frame go those that it inlined: run by Python, it would compile
        them.
        """
        if self.name == "frame":
            return self.only(self.points.keys() - keys)
        if len(keys) == len(self.points):
            return replace(self._switched(all_off(self.name)), record=(self.name,))
        return replace(self._switched(Switch(self.name, False, suffixes(keys, self.points))), record=self.told)

    def _switched(self, switch: Switch) -> Plan:
        return replace(self.base, switches=(*self.base.switches, switch))

    def fails_with_only(self, keys: frozenset[str]) -> bool:
        """Whether the same failure shows with exactly these on."""
        return self.search.status(self.search.trial(*self.with_only(keys))) == "same"

    @property
    def ahead(self) -> Ahead | None:
        """Runs the trials of `fails_with_only` for several sets at once; ``None`` where they cannot run in parallel."""
        return self.search.ahead(self.with_only, self.with_off)

    def off(self, keys: Collection[str]) -> Outcome:
        """The outcome with exactly these off."""
        return self.search.trial(*self.with_off(keys))

    def with_off(self, keys: Collection[str]) -> Candidate:
        """The trial with exactly these off."""
        named = sorted(self.points[k].name for k in keys)
        names = ", ".join(named) if len(named) <= _LISTED else f"{len(named)} of {len(self.points)}"
        return Candidate(self.without(keys), f"off: {shown(self.name)} {names}")

    def halves(self, keys: Collection[str]) -> tuple[Candidate, Candidate]:
        """The two trials that verify a verdict: with these off the failure must be gone, with only these on it must
        stay.
        """
        return self.with_off(keys), Candidate(self.only(keys), "the culprits on, the rest of their kind off")

    def with_only(self, keys: Collection[str]) -> Candidate:
        """The trial with exactly these on, labelled by whichever part is smaller."""
        rest = self.points.keys() - keys
        if rest and len(rest) < len(keys):
            return self.with_off(rest)
        label = f"{len(keys)} of {len(self.points)} {plural(self.name)} on, the others off"
        return Candidate(self.only(keys), label)


def all_off(name: str) -> Switch:
    """The switch that turns off all decisions of a kind."""
    return Switch(name, keep=True, suffixes=())


def by_witness(these: Decisions, seen: Outcome) -> frozenset[str] | None:
    """The decisions that the failure names, added one after another until it is gone; ``None`` where that does not
    help.
    """
    named: set[str] = set()
    outcome = seen
    for _ in range(_WITNESSES):
        new = _named(these, outcome, named)
        if not new:
            return frozenset(named) if these.search.status(outcome) == "different" else None
        named |= new
        outcome = these.off(named)
        if outcome.passed:
            return frozenset(named)
    return None


def _named(these: Decisions, outcome: Outcome, already: set[str]) -> set[str]:
    """The decisions that the first witness matches, without those that are off already."""
    for name in outcome.witness:
        fitting = {k for k, p in these.points.items() if name in (k, p.name, p.target)} - already
        if fitting:
            return fitting
    return set()


def by_bisection(these: Decisions, known: Sequence[frozenset[str]] = ()) -> list[frozenset[str]]:
    """Minimal failing sets, one after another, until with all of them off the same failure is gone.

    ``known`` are sets that were found before. Returns none where the failure stays with the whole kind off: then no
    decision of this kind explains it.
    """
    found = list(known)
    if found and _has_no_part(these, union(found)):
        return []
    if found:
        found += _siblings_at_fault(these, union(found))
    rest = frozenset(these.points) - union(found)
    for _ in range(_SETS):
        if not rest or (found and these.search.status(these.off(union(found))) != "same"):
            return found
        ordered = [key for key in these.points if key in rest]
        found.append(minimal_set(ordered, these.fails_with_only, these.ahead) if len(rest) > 1 else rest)
        found += _siblings_at_fault(these, union(found))
        rest -= union(found)
    return found


def _has_no_part(these: Decisions, found: frozenset[str]) -> bool:
    status = these.search.status
    return status(these.off(found)) == "same" and status(these.off(these.points.keys())) == "same"


def union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """The keys of all sets together."""
    return frozenset().union(*sets)


def _siblings_at_fault(these: Decisions, found: frozenset[str]) -> list[frozenset[str]]:
    """Other decisions on the same operators, where switching off ``found`` is not enough and switching off all of them
    is.

    A wrong lowering is wrong for each node that uses it. Looking there first finds each of the others in a trial or
    two.
    """
    targets = {these.points[key].target for key in found} - {None}
    siblings = frozenset(k for k, p in these.points.items() if p.target in targets) - found
    if not siblings or these.search.status(these.off(found)) != "same":
        return []
    if not these.off(found | siblings).passed or not these.fails_with_only(siblings):
        return []
    return culprit_sets(siblings, these.fails_with_only, these.ahead)
