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

from dynadiag.bisect.decisions import (
    DecisionPool,
    build_culprits,
    find_by_bisection,
    find_by_witness,
    kind_name,
    kind_plural,
    switch_all_off,
    union,
)
from dynadiag.bisect.ladder import labeled_rung
from dynadiag.bisect.narrowing import FailingPart, find_direction, find_needed_graphs, find_suspects
from dynadiag.bisect.trial_search import TrialSearch
from dynadiag.bisect.verdict import Culprit
from dynadiag.render.formatting import list_counted
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import LOWER_RUNG, Plan

__all__ = ["DescentResult", "descend", "find_culprits"]

# Latest first. A kind without decisions at a rung costs no trial.
_INDUCTOR_KINDS = ("kernel", "fusion", "lowering", "pattern", "pass", "decomposition", "cudagraphs", "graph")
_KINDS_OF_RUNG = {
    "inductor": (*_INDUCTOR_KINDS, "dynamo_graph"),
    "triton": (*_INDUCTOR_KINDS, "dynamo_graph"),
    "custom": ("kernel", "fusion", "lowering", "pattern", "pass", "decomposition", "dynamo_graph"),
    "aot_eager_decomp_partition": ("decomposition", "dynamo_graph"),
    "aot_eager": ("dynamo_graph",),
    "eager": ("frame",),
}


@dataclass(frozen=True, slots=True)
class DescentResult:
    """What the descent found. ``confirmed`` is empty where no culprit was verified. ``plans`` reproduce the
    verification.
    """

    culprits: tuple[Culprit, ...] = ()
    confirmed: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    notes: tuple[str, ...] = ()


def descend(search: TrialSearch, base: Plan, rung: str, seen: Outcome) -> DescentResult:
    """What explains the failure at ``rung``. ``seen`` is the outcome there, with every kind reported."""
    lies = _check_fake_kernels(search, base, seen)
    if lies.confirmed:
        return lies
    interrupted = _check_interrupted(search, base, seen)
    if interrupted.confirmed:
        return replace(interrupted, notes=(*lies.notes, *interrupted.notes))
    near = find_suspects(search, base, seen)
    finding = _verify(*near) if near and near[1] else DescentResult()
    if finding.confirmed:
        return replace(finding, notes=(*lies.notes, *finding.notes))
    notes = list(lies.notes)
    part = find_needed_graphs(search, base, seen)
    classes = [c for c in _KINDS_OF_RUNG.get(rung, ()) if any(p.group == c for p in seen.points)]
    for name, helped in _explaining_kinds(search, part.plan, classes, _statuses_when_gone(search, base, rung)):
        met = (seen,) if name == "frame" else (seen, helped)
        points = {p.key: p for outcome in met for p in outcome.points if p.group == name}
        whole = DecisionPool(search, base, name, points, (name,) if seen.was_killed else ())
        finding = _search_kind(whole, part, seen)
        if finding.confirmed:
            finding = _narrow_to_direction(whole, finding)
            return replace(finding, culprits=_use_failure_line(finding.culprits, seen), notes=(*notes, *finding.notes))
        notes.extend(finding.notes)
    return DescentResult(notes=tuple(notes))


def find_culprits(search: TrialSearch, base: Plan, name: str, points: dict[str, Decision]) -> DescentResult:
    """The culprits among decisions of one kind, by bisection alone."""
    these = DecisionPool(search, base, name, points)
    return _verify(these, find_by_bisection(these))


def _check_fake_kernels(search: TrialSearch, base: Plan, seen: Outcome) -> DescentResult:
    """The wrong fake kernels that the failure comes from, where the program has custom operators.

    One trial replaces all fake kernels and reports which of them were wrong. Where it passes, nothing else is searched:
    decisions about operators that read the results would only look guilty.
    """
    if not (seen.facts or {}).get("operators"):
        return DescentResult()
    outcome = _run_without_kinds(search, base, ("operator",))
    points = {p.key: p for p in outcome.points if p.group == "operator"}
    if not points or not outcome.passed:
        return DescentResult(notes=outcome.notes)
    finding = find_culprits(search, base, "operator", points)
    return replace(finding, notes=(*outcome.notes, *finding.notes))


def _check_interrupted(search: TrialSearch, base: Plan, seen: Outcome) -> DescentResult:
    """The decision that was being applied when the process was killed. Only a trial with it off may end at all."""
    name = next((p.group for p in seen.points if seen.was_killed and p.key in seen.witness), None)
    if name is None:
        return DescentResult()
    these = DecisionPool(search, base, name, {p.key: p for p in seen.points if p.group == name}, (name,))
    named = find_by_witness(these, seen)
    return _verify(these, [frozenset({key}) for key in named]) if named else DescentResult()


def _narrow_to_direction(graphs: DecisionPool, finding: DescentResult) -> DescentResult:
    """Narrow a culprit that is a whole compiled graph to its forward or its backward."""
    keys = [key for key, point in graphs.points.items() if point.name == finding.culprits[0].name]
    if graphs.name != "dynamo_graph" or len(finding.culprits) > 1 or len(keys) != 1:
        return finding
    direction = find_direction(graphs, keys[0])
    if direction is None:
        return finding
    culprit = replace(finding.culprits[0], graph=direction.name)
    more = f"with exactly its {direction.name} off it passes, and with exactly its other direction off it still fails"
    return replace(
        finding,
        culprits=(culprit,),
        confirmed=(*finding.confirmed, more),
        plans=(*finding.plans, direction.plan_without, direction.plan_without_other),
    )


def _use_failure_line(culprits: tuple[Culprit, ...], seen: Outcome) -> tuple[Culprit, ...]:
    """For a frame, replace the line of its ``def`` by the line that the failure names."""
    if len(culprits) != 1 or culprits[0].group != "frame" or not seen.lines:
        return culprits
    return (replace(culprits[0], lines=seen.lines),)


def _statuses_when_gone(search: TrialSearch, base: Plan, rung: str) -> tuple[str, ...]:
    """The statuses that mean that the failure is gone. Where the rung below fails differently, no trial can pass."""
    if rung not in LOWER_RUNG:
        return ("pass",)
    below = search.run(*labeled_rung(base, LOWER_RUNG[rung]))  # known from the ladder
    return ("pass", "different") if search.status(below, across_rungs=True) == "different" else ("pass",)


def _explaining_kinds(
    search: TrialSearch, base: Plan, classes: Sequence[str], gone: Sequence[str]
) -> Iterable[tuple[str, Outcome]]:
    """The kinds that may explain the failure, likeliest first, each with the outcome of switching it off alone.

    The kind where the shortest explaining prefix ends comes first. A kind that does not help alone explains nothing.
    """
    best = _shortest_explaining_prefix(search, base, classes, gone)
    ordered = [classes[best], *classes[:best], *classes[best + 1 :]] if best is not None else classes
    for name in ordered:
        outcome = _run_without_kinds(search, base, (name,))
        if search.status(outcome) in gone:
            yield name, outcome


def _shortest_explaining_prefix(
    search: TrialSearch, base: Plan, classes: Sequence[str], gone: Sequence[str]
) -> int | None:
    """The index of the last kind of the shortest prefix without the failure; ``None`` where no prefix helps.

    Lowerings are at fault most often. With all of them off no kernel is written and nothing is fused. So they are tried
    first: where they do not help, no prefix that ends before them does.
    """
    low, high = 0, len(classes) + 1  # the prefix of length `low` does not help, that of length `high` does (or is none)
    if "lowering" in classes:
        end = classes.index("lowering") + 1
        low, high = (0, end) if _explains(search, base, ("lowering",), gone) else (end, high)
    while high - low > 1:
        middle = (low + high + 1) // 2
        if _explains(search, base, classes[:middle], gone):
            high = middle
        else:
            low = middle
    return high - 1 if high <= len(classes) else None


def _explains(search: TrialSearch, base: Plan, classes: Sequence[str], gone: Sequence[str]) -> bool:
    return search.status(_run_without_kinds(search, base, classes)) in gone


def _run_without_kinds(search: TrialSearch, base: Plan, classes: Sequence[str]) -> Outcome:
    """The outcome with all of these kinds off. It reports all their decisions, unlike a compile that fails half way."""
    switches = tuple(switch_all_off(name) for name in classes)
    kept = tuple(switch for switch in base.switches if switch.group not in classes)
    plan = replace(base, record=tuple(classes), switches=(*kept, *switches))
    return search.run(plan, f"all off: {', '.join(map(kind_name, classes))}")


def _search_kind(whole: DecisionPool, part: FailingPart, seen: Outcome) -> DescentResult:
    """The culprits within one kind: first in the graphs that the failure needs, then in all."""
    named = find_by_witness(whole, seen)
    if named:
        return _verify(whole, [frozenset({key}) for key in named])
    sets = find_by_bisection(whole, _search_failing_part(whole, part))
    if not sets:
        return DescentResult(notes=(f"no set of {kind_plural(whole.name)} explains the failure by itself",))
    return _verify(whole, sets)


def _search_failing_part(whole: DecisionPool, part: FailingPart) -> list[frozenset[str]]:
    """The culprits in the graphs that the failure needs; none where it needs all graphs."""
    points = {key: point for key, point in whole.points.items() if part.contains(point)}
    if part.graphs is None or not points or whole.name == "graph":
        return []
    return find_by_bisection(replace(whole, base=part.plan, points=points))


def _verify(these: DecisionPool, sets: Sequence[frozenset[str]]) -> DescentResult:
    """Run the two trials that verify a verdict."""
    keys = union(sets)
    halves = these.verification_trials(keys)
    these.search.run_many(halves)
    without, only = (these.search.run(*half) for half in halves)
    gone, stays = these.search.status(without) in ("pass", "different"), these.search.status(only) == "same"
    culprits = build_culprits(these.name, these.points, sets)
    names = list_counted(c.name for c in culprits)
    if not (gone and stays):
        which = "it is not gone with them off" if not gone else "it does not fail with only them on"
        return DescentResult(notes=(f"{names} ({these.name}) not confirmed: {which}",))
    return DescentResult(
        culprits,
        (
            f"with exactly {names} off {_how_it_ends(without)}",
            f"with every other {kind_name(these.name)} off it still fails",
        ),
        (these.plan_without(keys), these.plan_with_only(keys)),
    )


def _how_it_ends(without: Outcome) -> str:
    if without.signature is None:
        return "it passes"
    return f"it is gone, and another failure shows: {without.signature.type}"
