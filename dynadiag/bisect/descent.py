"""The descent below the ladder: which decision of the compiler is at fault, and from which of the user's lines it came.

1. Which compiled graphs (forward or backward) the failure needs. The others run uncompiled during the search.

2. Which kind of decision. Kinds are ordered latest first, and a prefix of them is switched off together. The shortest
prefix without the failure ends in the kind that explains it.

3. Which decisions of that kind: those that the failure itself names, if trials confirm them, else by hash bisection.

4. Two trials verify the verdict: with exactly the culprits off the failure is gone, and with everything else of their
kind off it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisect.culprits import culprits_of, plural, shown
from dynadiag.bisect.decisions import Decisions, all_off, by_bisection, by_witness, union
from dynadiag.bisect.direction import direction_of
from dynadiag.bisect.graphs import Part, needed_graphs
from dynadiag.bisect.ladder import candidate_at
from dynadiag.bisect.search import Search
from dynadiag.bisect.suspects import suspected
from dynadiag.bisect.verdict import Culprit
from dynadiag.render.words import counted
from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.plan import BELOW, Plan

__all__ = ["Finding", "at_fault", "descend"]

# Latest first. A kind without decisions at a rung costs no trial.
_PARTS = ("kernel", "fusion", "lowering", "pattern", "pass", "decomposition", "cudagraphs", "graph")
_CLASSES = {
    "inductor": (*_PARTS, "dynamo_graph"),
    "triton": (*_PARTS, "dynamo_graph"),
    "custom": ("kernel", "fusion", "lowering", "pattern", "pass", "decomposition", "dynamo_graph"),
    "aot_eager_decomp_partition": ("decomposition", "dynamo_graph"),
    "aot_eager": ("dynamo_graph",),
    "eager": ("frame",),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What the descent found. ``confirmed`` is empty where no culprit was verified. ``plans`` reproduce the
    verification.
    """

    culprits: tuple[Culprit, ...] = ()
    confirmed: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    notes: tuple[str, ...] = ()


def descend(search: Search, base: Plan, rung: str, seen: Outcome) -> Finding:
    """What explains the failure at ``rung``. ``seen`` is the outcome there, with every kind reported."""
    lies = _fake_kernels(search, base, seen)
    if lies.confirmed:
        return lies
    interrupted = _interrupted(search, base, seen)
    if interrupted.confirmed:
        return replace(interrupted, notes=(*lies.notes, *interrupted.notes))
    near = suspected(search, base, seen)
    finding = _confirmed(*near) if near and near[1] else Finding()
    if finding.confirmed:
        return replace(finding, notes=(*lies.notes, *finding.notes))
    notes = list(lies.notes)
    part = needed_graphs(search, base, seen)
    classes = [c for c in _CLASSES.get(rung, ()) if any(p.group == c for p in seen.points)]
    for name, helped in _candidates(search, part.plan, classes, _endings_of_gone(search, base, rung)):
        met = (seen,) if name == "frame" else (seen, helped)
        points = {p.key: p for outcome in met for p in outcome.points if p.group == name}
        whole = Decisions(search, base, name, points, (name,) if seen.killed else ())
        finding = _within(whole, part, seen)
        if finding.confirmed:
            finding = _directed(whole, finding)
            return replace(finding, culprits=_blamed(finding.culprits, seen), notes=(*notes, *finding.notes))
        notes.extend(finding.notes)
    return Finding(notes=tuple(notes))


def at_fault(search: Search, base: Plan, name: str, points: dict[str, Point]) -> Finding:
    """The culprits among decisions of one kind, by bisection alone."""
    these = Decisions(search, base, name, points)
    return _confirmed(these, by_bisection(these))


def _fake_kernels(search: Search, base: Plan, seen: Outcome) -> Finding:
    """The wrong fake kernels that the failure comes from, where the program has custom operators.

    One trial replaces all fake kernels and reports which of them were wrong. Where it passes, nothing else is searched:
    decisions about operators that read the results would only look guilty.
    """
    if not (seen.facts or {}).get("operators"):
        return Finding()
    outcome = _off_altogether(search, base, ("operator",))
    points = {p.key: p for p in outcome.points if p.group == "operator"}
    if not points or not outcome.passed:
        return Finding(notes=outcome.notes)
    finding = at_fault(search, base, "operator", points)
    return replace(finding, notes=(*outcome.notes, *finding.notes))


def _interrupted(search: Search, base: Plan, seen: Outcome) -> Finding:
    """The decision that was being applied when the process was killed. Only a trial with it off may end at all."""
    name = next((p.group for p in seen.points if seen.killed and p.key in seen.witness), None)
    if name is None:
        return Finding()
    these = Decisions(search, base, name, {p.key: p for p in seen.points if p.group == name}, (name,))
    named = by_witness(these, seen)
    return _confirmed(these, [frozenset({key}) for key in named]) if named else Finding()


def _directed(graphs: Decisions, finding: Finding) -> Finding:
    """Narrow a culprit that is a whole compiled graph to its forward or its backward."""
    keys = [key for key, point in graphs.points.items() if point.name == finding.culprits[0].name]
    if graphs.name != "dynamo_graph" or len(finding.culprits) > 1 or len(keys) != 1:
        return finding
    direction = direction_of(graphs, keys[0])
    if direction is None:
        return finding
    culprit = replace(finding.culprits[0], graph=direction.name)
    more = f"with exactly its {direction.name} off it passes, and with exactly its other direction off it still fails"
    return replace(
        finding,
        culprits=(culprit,),
        confirmed=(*finding.confirmed, more),
        plans=(*finding.plans, direction.gone, direction.stays),
    )


def _blamed(culprits: tuple[Culprit, ...], seen: Outcome) -> tuple[Culprit, ...]:
    """For a frame, replace the line of its ``def`` by the line that the failure names."""
    if len(culprits) != 1 or culprits[0].group != "frame" or not seen.lines:
        return culprits
    return (replace(culprits[0], lines=seen.lines),)


def _endings_of_gone(search: Search, base: Plan, rung: str) -> tuple[str, ...]:
    """The statuses that mean that the failure is gone. Where the rung below fails differently, no trial can pass."""
    if rung not in BELOW:
        return ("pass",)
    below = search.trial(*candidate_at(base, BELOW[rung]))  # known from the ladder
    return ("pass", "different") if search.status(below, across_rungs=True) == "different" else ("pass",)


def _candidates(
    search: Search, base: Plan, classes: Sequence[str], gone: Sequence[str]
) -> Iterable[tuple[str, Outcome]]:
    """The kinds that may explain the failure, likeliest first, each with the outcome of switching it off alone.

    The kind where the shortest explaining prefix ends comes first. A kind that does not help alone explains nothing.
    """
    best = _shortest_helping_prefix(search, base, classes, gone)
    ordered = [classes[best], *classes[:best], *classes[best + 1 :]] if best is not None else classes
    for name in ordered:
        outcome = _off_altogether(search, base, (name,))
        if search.status(outcome) in gone:
            yield name, outcome


def _shortest_helping_prefix(search: Search, base: Plan, classes: Sequence[str], gone: Sequence[str]) -> int | None:
    """The index of the last kind of the shortest prefix without the failure; ``None`` where no prefix helps.

    Lowerings are at fault most often. With all of them off no kernel is written and nothing is fused. So they are tried
    first: where they do not help, no prefix that ends before them does.
    """
    low, high = 0, len(classes) + 1  # the prefix of length `low` does not help, that of length `high` does (or is none)
    if "lowering" in classes:
        end = classes.index("lowering") + 1
        low, high = (0, end) if _helps(search, base, ("lowering",), gone) else (end, high)
    while high - low > 1:
        middle = (low + high + 1) // 2
        if _helps(search, base, classes[:middle], gone):
            high = middle
        else:
            low = middle
    return high - 1 if high <= len(classes) else None


def _helps(search: Search, base: Plan, classes: Sequence[str], gone: Sequence[str]) -> bool:
    return search.status(_off_altogether(search, base, classes)) in gone


def _off_altogether(search: Search, base: Plan, classes: Sequence[str]) -> Outcome:
    """The outcome with all of these kinds off. It reports all their decisions, unlike a compile that fails half way."""
    switches = tuple(all_off(name) for name in classes)
    kept = tuple(switch for switch in base.switches if switch.group not in classes)
    plan = replace(base, record=tuple(classes), switches=(*kept, *switches))
    return search.trial(plan, f"all off: {', '.join(map(shown, classes))}")


def _within(whole: Decisions, part: Part, seen: Outcome) -> Finding:
    """The culprits within one kind: first in the graphs that the failure needs, then in all."""
    named = by_witness(whole, seen)
    if named:
        return _confirmed(whole, [frozenset({key}) for key in named])
    sets = by_bisection(whole, _within_part(whole, part))
    if not sets:
        return Finding(notes=(f"no set of {plural(whole.name)} explains the failure by itself",))
    return _confirmed(whole, sets)


def _within_part(whole: Decisions, part: Part) -> list[frozenset[str]]:
    """The culprits in the graphs that the failure needs; none where it needs all graphs."""
    points = {key: point for key, point in whole.points.items() if part.holds(point)}
    if part.graphs is None or not points or whole.name == "graph":
        return []
    return by_bisection(replace(whole, base=part.plan, points=points))


def _confirmed(these: Decisions, sets: Sequence[frozenset[str]]) -> Finding:
    """Run the two trials that verify a verdict."""
    keys = union(sets)
    halves = these.halves(keys)
    these.search.together(halves)
    without, only = (these.search.trial(*half) for half in halves)
    gone, stays = these.search.status(without) in ("pass", "different"), these.search.status(only) == "same"
    culprits = culprits_of(these.name, these.points, sets)
    names = counted(c.name for c in culprits)
    if not (gone and stays):
        which = "it is not gone with them off" if not gone else "it does not fail with only them on"
        return Finding(notes=(f"{names} ({these.name}) not confirmed: {which}",))
    return Finding(
        culprits,
        (f"with exactly {names} off {_ending(without)}", f"with every other {shown(these.name)} off it still fails"),
        (these.without(keys), these.only(keys)),
    )


def _ending(without: Outcome) -> str:
    if without.signature is None:
        return "it passes"
    return f"it is gone, and another failure shows: {without.signature.type}"
