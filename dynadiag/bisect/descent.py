"""Below the ladder: which decision of the compiler, and which of the user's lines it came from.

First the compiled graphs, forward or backward, that have to be compiled for the failure to show: the others are run
as they are while it is searched for. Then the class. The classes are ordered latest first, and all of a prefix of them
are turned off together: the shortest prefix that makes the failure go ends in the class that explains it. Then the
decisions within the class, by what the failure itself names where that is confirmed, else by hash bisection. Then both
halves of the verdict are tried: with exactly the culprits off the failure is gone, and with everything else of their
class off it stays.
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

# Latest first. A class that a rung does not have has no decisions there and costs no trial.
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
    """``confirmed`` is empty where no culprit could be named that both trials bear out."""

    culprits: tuple[Culprit, ...] = ()
    confirmed: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    notes: tuple[str, ...] = ()


def descend(search: Search, base: Plan, rung: str, seen: Outcome) -> Finding:
    """What explains the failure at ``rung``. ``seen`` is a trial there that recorded every class."""
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
    """The culprits among the decisions of one class, by bisection alone."""
    these = Decisions(search, base, name, points)
    return _confirmed(these, by_bisection(these))


def _fake_kernels(search: Search, base: Plan, seen: Outcome) -> Finding:
    """Where the program has operators of its own: the fake kernels that the failure comes from.

    A trial in which none is believed tells of those that promise something else than comes. Where it passes nothing
    else need be searched: the decisions on what reads the results only stand where the lie shows.
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
    """What was under way when its process was killed: a trial with it off tells, and may be the only one that ends."""
    name = next((p.group for p in seen.points if seen.killed and p.key in seen.witness), None)
    if name is None:
        return Finding()
    these = Decisions(search, base, name, {p.key: p for p in seen.points if p.group == name}, (name,))
    named = by_witness(these, seen)
    return _confirmed(these, [frozenset({key}) for key in named]) if named else Finding()


def _directed(graphs: Decisions, finding: Finding) -> Finding:
    """Of a graph that was compiled as a whole, whether its forward or its backward is at fault."""
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
    """A frame's own line is its ``def``; the line that the failure itself names says more."""
    if len(culprits) != 1 or culprits[0].group != "frame" or not seen.lines:
        return culprits
    return (replace(culprits[0], lines=seen.lines),)


def _endings_of_gone(search: Search, base: Plan, rung: str) -> tuple[str, ...]:
    """How a trial may end in which the failure is gone. Where the rung below fails in another way none can pass."""
    if rung not in BELOW:
        return ("pass",)
    below = search.trial(*candidate_at(base, BELOW[rung]))  # the ladder made it
    return ("pass", "different") if search.status(below, across_rungs=True) == "different" else ("pass",)


def _candidates(
    search: Search, base: Plan, classes: Sequence[str], gone: Sequence[str]
) -> Iterable[tuple[str, Outcome]]:
    """The classes that may explain it, likeliest first, each with a trial in which it alone is off: there it is gone.

    That is where the shortest prefix that helps ends. A class that does not help by itself explains nothing, whatever
    else is off.
    """
    best = _shortest_helping_prefix(search, base, classes, gone)
    ordered = [classes[best], *classes[:best], *classes[best + 1 :]] if best is not None else classes
    for name in ordered:
        outcome = _off_altogether(search, base, (name,))
        if search.status(outcome) in gone:
            yield name, outcome


def _shortest_helping_prefix(search: Search, base: Plan, classes: Sequence[str], gone: Sequence[str]) -> int | None:
    """Lowerings are where most faults are, and with all of them off no kernel is written and nothing fused.

    So they are tried first, by themselves: where that does not help no prefix that ends before them will.
    """
    low, high = 0, len(classes) + 1  # a prefix of `low` does not help; one of `high` does, or is not there
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
    """All of these classes off. A compile that fails stops half way: here every decision of a class is met."""
    switches = tuple(all_off(name) for name in classes)
    kept = tuple(switch for switch in base.switches if switch.group not in classes)
    plan = replace(base, record=tuple(classes), switches=(*kept, *switches))
    return search.trial(plan, f"all off: {', '.join(map(shown, classes))}")


def _within(whole: Decisions, part: Part, seen: Outcome) -> Finding:
    """The culprits within one class: in the graphs that the failure needs first, then in all."""
    named = by_witness(whole, seen)
    if named:
        return _confirmed(whole, [frozenset({key}) for key in named])
    sets = by_bisection(whole, _within_part(whole, part))
    if not sets:
        return Finding(notes=(f"no set of {plural(whole.name)} explains the failure by itself",))
    return _confirmed(whole, sets)


def _within_part(whole: Decisions, part: Part) -> list[frozenset[str]]:
    """The culprits in the graphs that the failure needs, where that are not all."""
    points = {key: point for key, point in whole.points.items() if part.holds(point)}
    if part.graphs is None or not points or whole.name == "graph":
        return []
    return by_bisection(replace(whole, base=part.plan, points=points))


def _confirmed(these: Decisions, sets: Sequence[frozenset[str]]) -> Finding:
    """Tries both halves of the verdict."""
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
