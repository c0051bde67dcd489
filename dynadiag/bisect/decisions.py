"""The decisions of one class, and which of them are at fault: by what the failure names, else by hash bisection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisect.culprits import plural, shown
from dynadiag.bisect.hashsearch import Ahead, culprit_sets, minimal_set, suffixes
from dynadiag.bisect.search import Candidate, Search
from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.plan import Plan, Switch

__all__ = ["Decisions", "all_off", "by_bisection", "by_witness", "union"]

_SETS = 16  # independent faults in one class before the search gives up
_LISTED = 3  # names in the line of a trial
_WITNESSES = 6  # names that failures give one after another before the search goes over to bisection


@dataclass(slots=True)
class Decisions:
    """The decisions of one class, and trials with some of them on.

    ``base`` may have switches of other classes: they stay as they are. ``told`` are the classes that trials tell of:
    a failure that kills its process has no other way to name a decision.
    """

    search: Search
    base: Plan
    name: str
    points: dict[str, Point]
    told: tuple[str, ...] = ()

    def only(self, keys: Collection[str]) -> Plan:
        return self._switched(Switch(self.name, keep=True, suffixes=suffixes(keys, self.points)))

    def without(self, keys: Collection[str]) -> Plan:
        """Exactly these off. With a frame go those that it inlined: left to Python, it would have them compiled."""
        if self.name == "frame":
            return self.only(self.points.keys() - keys)
        if len(keys) == len(self.points):
            return replace(self._switched(all_off(self.name)), record=(self.name,))
        return replace(self._switched(Switch(self.name, False, suffixes(keys, self.points))), record=self.told)

    def _switched(self, switch: Switch) -> Plan:
        return replace(self.base, switches=(*self.base.switches, switch))

    def fails_with_only(self, keys: frozenset[str]) -> bool:
        return self.search.status(self.search.trial(*self.with_only(keys))) == "same"

    @property
    def ahead(self) -> Ahead | None:
        """Makes the trials of `fails_with_only` for several sets at once; None where that would take as long."""
        return self.search.ahead(self.with_only, self.with_off)

    def off(self, keys: Collection[str]) -> Outcome:
        return self.search.trial(*self.with_off(keys))

    def with_off(self, keys: Collection[str]) -> Candidate:
        """A trial with these off."""
        named = sorted(self.points[k].name for k in keys)
        names = ", ".join(named) if len(named) <= _LISTED else f"{len(named)} of {len(self.points)}"
        return Candidate(self.without(keys), f"off: {shown(self.name)} {names}")

    def halves(self, keys: Collection[str]) -> tuple[Candidate, Candidate]:
        """The trials that bear out a verdict: with these off the failure is to be gone, with them alone to stay."""
        return self.with_off(keys), Candidate(self.only(keys), "the culprits on, the rest of the class off")

    def with_only(self, keys: Collection[str]) -> Candidate:
        """A trial with these on and the rest of the class off. It names whichever are fewer."""
        rest = self.points.keys() - keys
        if rest and len(rest) < len(keys):
            return self.with_off(rest)
        label = f"{len(keys)} of {len(self.points)} {plural(self.name)} on, the others off"
        return Candidate(self.only(keys), label)


def all_off(name: str) -> Switch:
    return Switch(name, keep=True, suffixes=())


def by_witness(these: Decisions, seen: Outcome) -> frozenset[str] | None:
    """The decisions that the failure names, one after another until it is gone; None where that does not help."""
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
    """What the first witness stands for among the decisions of this class which are not out yet."""
    for name in outcome.witness:
        fitting = {k for k, p in these.points.items() if name in (k, p.name, p.target)} - already
        if fitting:
            return fitting
    return set()


def by_bisection(these: Decisions, known: Sequence[frozenset[str]] = ()) -> list[frozenset[str]]:
    """Minimal failing sets one after another, until with all of them off it does not fail in the same way.

    ``known`` are sets that were found already. None at all where it fails with the whole class off: what then fails
    with few of them on fails whatever is on.
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
    return frozenset().union(*sets)


def _siblings_at_fault(these: Decisions, found: frozenset[str]) -> list[frozenset[str]]:
    """Other decisions on the same operators, where leaving out what was found is not enough and all of them is.

    A wrong lowering is wrong for each node that uses it: looking there first finds the others in a trial or two each.
    """
    targets = {these.points[key].target for key in found} - {None}
    siblings = frozenset(k for k, p in these.points.items() if p.target in targets) - found
    if not siblings or these.search.status(these.off(found)) != "same":
        return []
    if not these.off(found | siblings).passed or not these.fails_with_only(siblings):
        return []
    return culprit_sets(siblings, these.fails_with_only, these.ahead)
