"""Below the ladder: which decision of the compiler, and which of the user's lines it came from.

First the class. The classes are ordered latest first, and all of a prefix of them are turned off together: the
shortest prefix that makes the failure go ends in the class that explains it. Then the decisions within the class,
by what the failure itself names where that is confirmed, else by hash bisection. Then both halves of the verdict are
tried: with exactly the culprits off it passes, and with everything else of their class off it still fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisect.hashsearch import culprit_sets, minimal_set, suffixes
from dynadiag.bisect.search import Search
from dynadiag.bisect.verdict import Culprit
from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.plan import Plan, Switch

__all__ = ["Finding", "descend"]

# Latest first. A class that a rung does not have has no decisions there and costs no trial.
_CLASSES = {
    "inductor": ("kernel", "fusion", "lowering", "pattern", "pass", "decomposition", "cudagraphs", "graph"),
    "triton": ("kernel", "fusion", "lowering", "pattern", "pass", "decomposition", "cudagraphs", "graph"),
    "custom": ("kernel", "fusion", "lowering", "pattern", "pass", "decomposition", "dynamo_graph"),
    "aot_eager_decomp_partition": ("decomposition", "dynamo_graph"),
    "aot_eager": ("dynamo_graph",),
    "eager": ("frame",),
}
_SETS = 16  # independent faults in one class before the search gives up
_LISTED = 3  # names in the line of a trial
_WITNESSES = 6  # names that failures give one after another before the search goes over to bisection
_NAMED_SEPARATELY = 3  # culprits of one operator that are listed one by one; more are one entry with all its nodes


@dataclass(frozen=True, slots=True)
class Finding:
    """``confirmed`` is empty where no culprit could be named that both trials bear out."""

    culprits: tuple[Culprit, ...] = ()
    confirmed: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Class:
    """The decisions of one class, and trials with some of them on."""

    search: Search
    base: Plan
    name: str
    points: dict[str, Point]

    def only(self, keys: Collection[str]) -> Plan:
        chosen = suffixes(keys, self.points)
        return replace(self.base, switches=(Switch(self.name, keep=True, suffixes=chosen),))

    def without(self, keys: Collection[str]) -> Plan:
        if len(keys) == len(self.points):
            return replace(self.base, record=(self.name,), switches=(_all_off(self.name),))
        chosen = suffixes(keys, self.points)
        return replace(self.base, switches=(Switch(self.name, keep=False, suffixes=chosen),))

    def fails_with_only(self, keys: frozenset[str]) -> bool:
        rest = self.points.keys() - keys
        if rest and len(rest) < len(keys):
            outcome = self.off(rest)
        else:
            outcome = self.search.trial(self.only(keys), f"{self._noun(len(keys))} on, the others off")
        return self.search.status(outcome) == "same"

    def off(self, keys: Collection[str]) -> Outcome:
        named = sorted(self.points[k].name for k in keys)
        names = ", ".join(named) if len(named) <= _LISTED else f"{len(named)} of {len(self.points)}"
        return self.search.trial(self.without(keys), f"off: {_shown(self.name)} {names}")

    def _noun(self, count: int) -> str:
        return f"{count} of {len(self.points)} {_plural(self.name)}"


def descend(search: Search, base: Plan, rung: str, seen: Outcome) -> Finding:
    """What explains the failure at ``rung``. ``seen`` is a trial there that recorded every class."""
    notes: list[str] = []
    classes = [c for c in _CLASSES.get(rung, ()) if any(p.group == c for p in seen.points)]
    for name, helped in _candidates(search, base, classes):
        points = {p.key: p for outcome in (seen, helped) for p in outcome.points if p.group == name}
        finding = _within(_Class(search, base, name, points), seen)
        if finding.confirmed:
            return replace(finding, culprits=_blamed(finding.culprits, seen), notes=(*notes, *finding.notes))
        notes.extend(finding.notes)
    return Finding(notes=tuple(notes))


def _blamed(culprits: tuple[Culprit, ...], seen: Outcome) -> tuple[Culprit, ...]:
    """A frame's own line is its ``def``; the line that the failure itself names says more."""
    if len(culprits) != 1 or culprits[0].group != "frame" or not seen.lines:
        return culprits
    return (replace(culprits[0], lines=seen.lines),)


def _candidates(search: Search, base: Plan, classes: Sequence[str]) -> Iterable[tuple[str, Outcome]]:
    """The classes that may explain it, each with a passing trial in which it is off; likeliest first.

    That is where the shortest prefix that helps ends, then each that helps by itself.
    """
    best = _shortest_helping_prefix(search, base, classes)
    if best is not None:
        yield classes[best], _off_altogether(search, base, classes[: best + 1])
    for position, name in enumerate(classes):
        if position != best and _helps(search, base, (name,)):
            yield name, _off_altogether(search, base, (name,))


def _shortest_helping_prefix(search: Search, base: Plan, classes: Sequence[str]) -> int | None:
    """Lowerings are where most faults are, so the first prefix tried ends there."""
    low, high = 0, len(classes) + 1  # a prefix of `low` does not help; one of `high` does, or is not there
    middle = classes.index("lowering") + 1 if "lowering" in classes else (low + high) // 2
    while high - low > 1:
        if _helps(search, base, classes[:middle]):
            high = middle
        else:
            low = middle
        middle = (low + high + 1) // 2
    return high - 1 if high <= len(classes) else None


def _helps(search: Search, base: Plan, classes: Sequence[str]) -> bool:
    return _off_altogether(search, base, classes).passed


def _off_altogether(search: Search, base: Plan, classes: Sequence[str]) -> Outcome:
    """All of these classes off. A compile that fails stops half way: here every decision of a class is met."""
    plan = replace(base, record=tuple(classes), switches=tuple(_all_off(name) for name in classes))
    return search.trial(plan, f"all off: {', '.join(map(_shown, classes))}")


def _all_off(name: str) -> Switch:
    return Switch(name, keep=True, suffixes=())


def _within(these: _Class, seen: Outcome) -> Finding:
    """The culprits within one class."""
    named = _by_witness(these, seen)
    sets = [frozenset({key}) for key in named] if named else _by_bisection(these)
    if not sets:
        return Finding(notes=(f"no set of {_plural(these.name)} explains the failure by itself",))
    return _confirmed(these, sets)


def _by_witness(these: _Class, seen: Outcome) -> frozenset[str] | None:
    """The decisions that the failure names, one after another until it is gone; None where that does not help."""
    named: set[str] = set()
    outcome = seen
    for _ in range(_WITNESSES):
        new = _named(these, outcome, named)
        if not new:
            return None
        named |= new
        outcome = these.off(named)
        if outcome.passed:
            return frozenset(named)
    return None


def _named(these: _Class, outcome: Outcome, already: set[str]) -> set[str]:
    """The first name that stands for decisions of this class which are not out yet."""
    for name in outcome.witness:
        fitting = {k for k, p in these.points.items() if name in (p.name, p.target)} - already
        if fitting:
            return fitting
    return set()


def _by_bisection(these: _Class) -> list[frozenset[str]]:
    """Minimal failing sets one after another, until with all of them off it does not fail in the same way."""
    found: list[frozenset[str]] = []
    rest = frozenset(these.points)
    for _ in range(_SETS):
        if not rest or (found and these.search.status(these.off(_union(found))) != "same"):
            return found
        found.append(minimal_set(rest, these.fails_with_only) if len(rest) > 1 else rest)
        found += _siblings_at_fault(these, _union(found))
        rest -= _union(found)
    return found


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _siblings_at_fault(these: _Class, found: frozenset[str]) -> list[frozenset[str]]:
    """Other decisions on the same operators, where leaving out what was found is not enough and all of them is.

    A wrong lowering is wrong for each node that uses it: looking there first finds the others in a trial or two each.
    """
    targets = {these.points[key].target for key in found} - {None}
    siblings = frozenset(k for k, p in these.points.items() if p.target in targets) - found
    if not siblings or these.search.status(these.off(found)) != "same":
        return []
    if not these.off(found | siblings).passed or not these.fails_with_only(siblings):
        return []
    return culprit_sets(siblings, these.fails_with_only)


def _confirmed(these: _Class, sets: Sequence[frozenset[str]]) -> Finding:
    """Tries both halves of the verdict."""
    keys = _union(sets)
    without, only = these.off(keys), these.search.trial(these.only(keys), "the culprits on, the rest of the class off")
    gone, stays = without.passed, these.search.status(only) == "same"
    culprits = _culprits_of(these, sets)
    if not (gone and stays):
        which = "it does not pass with them off" if not gone else "it does not fail with only them on"
        return Finding(notes=(f"{', '.join(c.name for c in culprits)} ({these.name}) not confirmed: {which}",))
    names = ", ".join(c.name for c in culprits)
    return Finding(
        culprits,
        (f"with exactly {names} off it passes", f"with every other {_shown(these.name)} off it still fails"),
        (these.without(keys), these.only(keys)),
    )


def _plural(group: str) -> str:
    return _shown(group) + ("es" if group.endswith("s") else "s")


def _shown(group: str) -> str:
    return "graph" if group == "dynamo_graph" else group


def _culprits_of(these: _Class, sets: Sequence[frozenset[str]]) -> tuple[Culprit, ...]:
    """A fusion is one culprit of several parts; of every other class each decision is one."""
    if these.name == "fusion":
        return tuple(_fusion([these.points[k] for k in these.points if k in chosen]) for chosen in sets)
    keys = _union(sets)
    return _culprits([these.points[k] for k in these.points if k in keys])


def _fusion(parts: Sequence[Point]) -> Culprit:
    names = dict.fromkeys(name for part in parts for name in part.name.split("+"))
    lines = tuple(dict.fromkeys(line for part in parts for line in part.lines))
    return Culprit("fusion", "+".join(names), parts[0].compile_id, _graph(parts[0]), lines)


def _culprits(points: Sequence[Point]) -> tuple[Culprit, ...]:
    """One entry a decision; an operator whose decisions are many is one entry that names its nodes."""
    grouped: dict[str, list[Point]] = {}
    for point in points:
        grouped.setdefault(point.target or point.key, []).append(point)
    if len(points) <= _NAMED_SEPARATELY:
        grouped = {point.key: [point] for point in points}
    return tuple(_culprit(group) for group in grouped.values())


def _culprit(points: Sequence[Point]) -> Culprit:
    first = points[0]
    lines = tuple(dict.fromkeys(line for point in points for line in point.lines))
    nodes = tuple(point.name for point in points) if len(points) > 1 else ()
    return Culprit(_shown(first.group), first.name, first.compile_id, _graph(first), lines, nodes)


def _graph(point: Point) -> str | None:
    return None if point.graph == "dynamo" else point.graph
