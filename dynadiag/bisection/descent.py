"""The descent below the ladder: which decision of the compiler is at fault, and from which of the user's lines it came.

1. Which compiled graphs (forward or backward) the failure needs. The others run uncompiled during the search.

2. Which kind of decision. Kinds are ordered latest first, and a prefix of them is switched off together. The shortest
prefix without the failure ends in the kind that explains it.

3. Which decisions of that kind: those that the failure itself names, if trials confirm them, else by hash bisection.
Where no kind smaller than a graph helps alone but several do together, each of these is enough for the failure: each is
searched with the others off.

4. Two trials verify the verdict: with exactly the culprits off the failure is gone, and with everything else of their
kind off it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.bisection.budget import AnswersContradictError, SearchStoppedError
from dynadiag.bisection.decisions import (
    ONE_CULPRIT_A_SET,
    DecisionPool,
    build_culprits,
    find_by_bisection,
    find_by_witness,
    functions_of,
    kind_name,
    kind_plural,
    names_decision,
    switch_all_off,
    union,
)
from dynadiag.bisection.hash_search import find_minimal_set
from dynadiag.bisection.ladder import labeled_rung
from dynadiag.bisection.narrowing import (
    FailingPart,
    compared_values,
    describe_diverged_value,
    find_direction,
    find_inlined_frames,
    find_inlined_value,
    find_needed_graphs,
    find_nodes,
    find_suspects,
)
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.bisection.verdict import Culprit
from dynadiag.explanation.formatting import list_counted
from dynadiag.trial.decision_kinds import kinds_of_rung
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import LOWER_RUNG, Plan

# The types that a kernel computes as they are; narrower ones are computed in a wider type, and rounded when stored.
_COMPUTED_AS_THEY_ARE = tuple(
    f"torch.{name}{bits}" for name in ("float", "int", "uint", "complex") for bits in (32, 64, 128)
)

_WHOLE_GRAPHS = ("graph", "dynamo_graph")

# What it means to switch a kind off, where that is another word.
_OFF = {"node": "uncompiled", "kernel": "without vectors"}


@dataclass(frozen=True, slots=True)
class DescentResult:
    """What the descent found. ``confirmed`` is empty if no culprit was verified. ``plans`` reproduce the
    verification. ``fails_by_time`` says that the search ended since the failure seems to be that it takes long.
    """

    culprits: tuple[Culprit, ...] = ()
    confirmed: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    notes: tuple[str, ...] = ()
    fails_by_time: bool = False


def descend(search: TrialSearch, base: Plan, rung: str, recorded: Outcome) -> DescentResult:
    """What explains the failure at ``rung``. ``recorded`` is the outcome there, with every kind reported."""
    fakes = _check_fake_kernels(search, base, recorded)
    if fakes.confirmed:
        return fakes
    interrupted = _check_interrupted(search, base, recorded)
    if interrupted.confirmed:
        return replace(interrupted, notes=(*fakes.notes, *interrupted.notes))
    near = find_suspects(search, base, recorded)
    result = _verify_or_find_link(*near) if near and near[1] else DescentResult()
    if result.confirmed:
        diverged = describe_diverged_value(search.run(*compared_values(base)))  # known from the narrowing
        return replace(result, notes=(*fakes.notes, *result.notes, *diverged))
    notes = list(fakes.notes)
    part = find_needed_graphs(search, base, recorded)
    classes = [c for c in kinds_of_rung(rung) if any(p.group == c for p in recorded.points)]
    named = [c for c in classes if names_decision(recorded, [p for p in recorded.points if p.group == c])]
    for names, helped in _explaining_kinds(search, part.plan, classes, named, _statuses_when_gone(search, base, rung)):
        if len(names) > 1:
            result = _search_each(search, base, names, helped, recorded)
            if result.confirmed:
                return replace(result, notes=(*notes, *result.notes))
            notes.extend(result.notes)
            continue
        (name,) = names
        points = {p.key: p for p in recorded.points if p.group == name}
        more = helped.points if name != "frame" else ()
        points |= {p.key: p for p in more if p.group == name and p.key not in points}
        pool = DecisionPool(search, base, name, points, (name,) if recorded.was_killed or name == "pass" else ())
        result = _search_kind(pool, part, recorded)
        if result.confirmed:
            result = _narrowed(pool, result, recorded)
            notes += _folded_constants(result.culprits, recorded)
            return replace(result, culprits=_use_failure_line(result.culprits, recorded), notes=(*notes, *result.notes))
        notes.extend(result.notes)
    return DescentResult(notes=tuple(notes))


def find_culprits(search: TrialSearch, base: Plan, name: str, points: dict[str, Decision]) -> DescentResult:
    """The culprits among decisions of one kind, by bisection alone."""
    pool = DecisionPool(search, base, name, points)
    return _verify(pool, find_by_bisection(pool))


def _check_fake_kernels(search: TrialSearch, base: Plan, recorded: Outcome) -> DescentResult:
    """The wrong fake kernels that the failure comes from, where the program has custom operators.

    One trial replaces all fake kernels and reports which of them were wrong. If it passes, nothing else is searched:
    decisions about operators that read the results would only look guilty.
    """
    if not recorded.facts.operators:
        return DescentResult()
    outcome = _run_without_kinds(search, base, ("operator",))
    points = {p.key: p for p in outcome.points if p.group == "operator"}
    if not points or not outcome.passed:
        return DescentResult(notes=outcome.notes)
    result = find_culprits(search, base, "operator", points)
    return replace(result, notes=(*outcome.notes, *result.notes))


def _check_interrupted(search: TrialSearch, base: Plan, recorded: Outcome) -> DescentResult:
    """The decision that was being applied when the process was killed. Perhaps only a trial with it off ends at all."""
    name = next((p.group for p in recorded.points if recorded.was_killed and p.key in recorded.witness), None)
    if name is None:
        return DescentResult()
    pool = DecisionPool(search, base, name, {p.key: p for p in recorded.points if p.group == name}, (name,))
    named = find_by_witness(pool, recorded)
    return _verify(pool, [frozenset({key}) for key in named]) if named else DescentResult()


def _folded_constants(culprits: Sequence[Culprit], recorded: Outcome) -> list[str]:
    """The culprits that no line of the program computes: constants that a pass put in the place of other nodes."""
    made = {
        name: (point.name, point.nodes)
        for point in recorded.points
        if point.group == "pass" and "constant" in (point.target or "")
        for name in point.added
    }
    named = ((culprit.name, made[culprit.name]) for culprit in culprits if culprit.name in made)
    return [
        f"{name} is a constant that {maker} made, which folded {', '.join(nodes)}" for name, (maker, nodes) in named
    ]


def _narrowed(pool: DecisionPool, result: DescentResult, recorded: Outcome) -> DescentResult:
    """A culprit that is a whole graph, narrowed as far as the budget allows: the culprit itself is confirmed."""
    try:
        result = _narrow_to_direction(pool, result)
        result = _narrow_to_inlined(pool, result, recorded)
        return _narrow_to_nodes(pool, result, recorded)
    except AnswersContradictError:
        raise
    except SearchStoppedError as stop:
        pool.search.leave_out(stop, "a narrower culprit")
        return result


def _narrow_to_direction(graphs: DecisionPool, result: DescentResult) -> DescentResult:
    """Narrow a culprit that is a whole compiled graph to its forward or its backward."""
    keys = [key for key, point in graphs.points.items() if point.name == result.culprits[0].name]
    if graphs.name != "dynamo_graph" or len(result.culprits) > 1 or len(keys) != 1:
        return result
    if result.culprits[0].graph == "inference":  # it has one direction
        return result
    direction = find_direction(graphs, keys[0])
    if direction is None:
        return result
    culprit = replace(result.culprits[0], graph=direction.name)
    more = f"with exactly its {direction.name} off it passes, and with exactly its other direction off it still fails"
    return replace(
        result,
        culprits=(culprit,),
        confirmed=(*result.confirmed, more),
        plans=(*result.plans, direction.plan_without, direction.plan_without_other),
    )


def _narrow_to_inlined(pool: DecisionPool, result: DescentResult, recorded: Outcome) -> DescentResult:
    """Narrow a frame to a function that it inlines, where the failure names no line."""
    keys = [key for key, point in pool.points.items() if point.name == result.culprits[0].name]
    if pool.name != "frame" or len(result.culprits) > 1 or len(keys) != 1 or recorded.lines or recorded.is_hang:
        return result
    inlined = find_inlined_frames(pool, keys[0])
    if not inlined:
        return result
    culprit = replace(result.culprits[0], lines=(*result.culprits[0].lines, *inlined[-1].lines))
    more = f"{inlined[-1].name}, which it calls, fails too if it is compiled by itself"
    return replace(result, culprits=(culprit,), confirmed=(*result.confirmed, more))


def _narrow_to_nodes(pool: DecisionPool, result: DescentResult, recorded: Outcome) -> DescentResult:
    """Narrow a culprit that is a whole graph of Dynamo's, or its functionalization, to nodes of that graph."""
    culprit = result.culprits[0]
    keys = [key for key, point in pool.points.items() if point.name == culprit.name]
    if pool.name not in ("dynamo_graph", "functionalization") or len(result.culprits) > 1 or len(keys) != 1:
        return result
    found = find_nodes(pool, keys[0], recorded)
    if found is None:
        return result
    nodes, chosen = found
    verified = _verify(nodes, [chosen])
    if not verified.confirmed:
        return replace(result, notes=(*result.notes, *verified.notes))
    points = [point for key, point in nodes.points.items() if key in chosen]
    lines = tuple(dict.fromkeys(line for point in points for line in point.lines))
    if len(points) == 1 and points[0].target in recorded.facts.operators:
        culprit = replace(culprit, group="operator", name=points[0].target)
        verified = replace(verified, notes=(_fails_traced(culprit),))
    return replace(
        result,
        culprits=(replace(culprit, nodes=tuple(point.name for point in points), lines=lines or culprit.lines),),
        notes=(*result.notes, *verified.notes),
        confirmed=(*result.confirmed, *verified.confirmed),
        plans=(*result.plans, *verified.plans),
    )


def _fails_traced(operator: Culprit) -> str:
    """What fails of a custom operator whose fake kernel and schema explain nothing."""
    if operator.graph == "backward":
        return (
            f"{operator.name} fails in its backward: AOTAutograd traces that once, on fake tensors, and runs the trace"
        )
    return (
        f"{operator.name} fails where AOTAutograd traces it, and no promise of its fake kernel or schema explains "
        "that: compare what its kernels for autograd, functionalization and tracing do with what it computes"
    )


def _use_failure_line(culprits: tuple[Culprit, ...], recorded: Outcome) -> tuple[Culprit, ...]:
    """For a frame and an export, replace the line where it begins by the line that the failure names."""
    if len(culprits) != 1 or culprits[0].group not in ("frame", "export") or not recorded.lines:
        return culprits
    return (replace(culprits[0], lines=recorded.lines),)


def _statuses_when_gone(search: TrialSearch, base: Plan, rung: str) -> tuple[str, ...]:
    """The statuses that mean that the failure is gone. If the rung below fails differently, no trial can pass."""
    if rung not in LOWER_RUNG:
        return ("pass",)
    below = search.run(*labeled_rung(base, LOWER_RUNG[rung]))  # known from the ladder
    return ("pass", "different") if search.status(below, across_rungs=True) == "different" else ("pass",)


def _explaining_kinds(
    search: TrialSearch, base: Plan, classes: Sequence[str], named: Sequence[str], gone: Sequence[str]
) -> Iterable[tuple[tuple[str, ...], Outcome]]:
    """The kinds that may explain the failure, likeliest first, each with the outcome of switching it off alone.

    The kind where the shortest explaining prefix ends comes first. Where no kind of that prefix helps alone, those of
    it that are needed are tried together, before anything as large as a graph. Where no less than a graph helps, the
    program may fail twice: then a kind counts if the failure names a decision of it, and with it off only another
    failure is left.
    """
    best = _shortest_explaining_prefix(search, base, classes, gone)
    large = best is None or classes[best] in _WHOLE_GRAPHS
    for name in named if large else ():
        outcome = _run_without_kinds(search, base, (name,))
        if search.status(outcome) == "different":
            yield (name,), outcome
    ordered = [classes[best], *classes[:best], *classes[best + 1 :]] if best is not None else classes
    together = False
    for name in ordered:
        if best is not None and not large and not together and name in _WHOLE_GRAPHS:
            together = True
            yield from _kinds_together(search, base, classes[: best + 1], gone)
        outcome = _run_without_kinds(search, base, (name,))
        if search.status(outcome) in gone:
            yield (name,), outcome


def _kinds_together(
    search: TrialSearch, base: Plan, classes: Sequence[str], gone: Sequence[str]
) -> Iterable[tuple[tuple[str, ...], Outcome]]:
    """The fewest of the kinds without which the failure is gone, where it takes more than one."""
    in_order = lambda off: tuple(name for name in classes if name in off)  # noqa: E731
    off = in_order(find_minimal_set(classes, lambda off: _explains(search, base, in_order(off), gone)))
    if len(off) > 1:
        yield off, _run_without_kinds(search, base, off)


def _shortest_explaining_prefix(
    search: TrialSearch, base: Plan, classes: Sequence[str], gone: Sequence[str]
) -> int | None:
    """The index of the last kind of the shortest prefix without the failure; ``None`` if no prefix helps.

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


def _search_kind(pool: DecisionPool, part: FailingPart, recorded: Outcome) -> DescentResult:
    """The culprits within one kind: first in the graphs that the failure needs, then in all."""
    named = find_by_witness(pool, recorded)
    if named:
        return _verify(pool, [frozenset({key}) for key in named])
    effective = _search_effective_passes(pool) if pool.name == "pass" else []
    sets = find_by_bisection(pool, effective or _search_failing_part(pool, part))
    if not sets:
        return DescentResult(notes=(f"no set of {kind_plural(pool.name)} explains the failure by itself",))
    return _verify_or_find_link(pool, sets)


def _verify_or_find_link(pool: DecisionPool, sets: Sequence[frozenset[str]]) -> DescentResult:
    """Verify a verdict. Lowerings that only fail together may be one value that goes unstored from one to the next."""
    chain = pool.name == "lowering" and len(sets) == 1 and len(sets[0]) > 1
    link, result = None, DescentResult()
    try:
        link = find_inlined_value(pool, sets[0]) if chain else None
        result = _verify(link[0], [link[1]]) if link is not None else result
    except AnswersContradictError:
        raise
    except SearchStoppedError as stop:  # the trials that verify the lowerings may be known
        pool.search.leave_out(stop, "the one value that has to be stored")
    if link is None or not result.confirmed:
        verified = _verify(pool, sets)
        return replace(verified, notes=(*verified.notes, *result.notes))
    values, keys = link
    names = [point.name for key, point in pool.points.items() if key in sets[0]]
    together = f"the lowerings {', '.join(names)} fail only together: each computes the one before it in its own kernel"
    return replace(result, notes=(together, *(_inlined(values.points[key]) for key in sorted(keys))))


def _inlined(point: Decision) -> str:
    """Describe a value that a kernel computes and never stores. Kernels compute narrow types in wider ones."""
    value, *readers = point.name.split("+")
    where = " and ".join(readers) or "its readers"
    rounded = "" if point.target in _COMPUTED_AS_THEY_ARE else f": it is never rounded to its type, {point.target}"
    return f"the value of {value} is computed inside {where}, not stored{rounded}"


def _search_each(
    search: TrialSearch, base: Plan, kinds: Sequence[str], helped: Outcome, recorded: Outcome
) -> DescentResult:
    """Find the culprits of several kinds, each of which is enough for the failure. Those of one kind are searched with
    the other kinds off. ``helped`` is the outcome with all of them off, and ``recorded`` that with all on, which says
    what a pass did.
    """
    found: list[DescentResult] = []
    on = {point.key: point for point in recorded.points}
    for name in kinds:
        others = (switch_all_off(other) for other in kinds if other != name)
        alone = replace(base, switches=(*base.switches, *others))
        points = {point.key: on.get(point.key, point) for point in helped.points if point.group == name}
        result = find_culprits(search, alone, name, points)
        if not result.confirmed:
            return DescentResult(notes=result.notes)
        found.append(result)
    culprits = tuple(culprit for result in found for culprit in result.culprits)
    names = list_counted(f"{culprit.group} {culprit.name}" for culprit in culprits)
    off = tuple(result.plans[0].switches[-1] for result in found)
    without = replace(base, switches=(*base.switches, *off))
    outcome = search.run(without, f"off: {names}")
    if search.status(outcome) not in ("pass", "different"):
        return DescentResult(notes=(f"{names} not confirmed: it is not gone with them off",))
    fails = tuple(
        f"with {' and '.join(f'every {kind_name(other)}' for other in kinds if other != name)} and every other "
        f"{kind_name(name)} off it still fails"
        for name in kinds
    )
    return DescentResult(
        culprits,
        (f"with exactly {names} off {_how_it_ends(outcome)}", *fails),
        (without, *(result.plans[1] for result in found)),
        ("each of them is enough for the failure: it is gone only with all off", *(n for r in found for n in r.notes)),
    )


def _search_failing_part(pool: DecisionPool, part: FailingPart) -> list[frozenset[str]]:
    """The culprits in the graphs that the failure needs; none if it needs all graphs."""
    points = {key: point for key, point in pool.points.items() if part.contains(point)}
    if part.graphs is None or not points or pool.name == "graph":
        return []
    return find_by_bisection(replace(pool, base=part.plan, points=points))


def _search_effective_passes(pool: DecisionPool) -> list[frozenset[str]]:
    """The culprits among the passes that changed a node. With those off, another pass may do the same, and be next."""
    found: list[frozenset[str]] = []
    changed = [key for key, point in pool.points.items() if point.nodes]
    while changed and pool.fails_with_only(frozenset(changed)):
        found.append(find_minimal_set(changed, pool.fails_with_only, pool.speculate))
        outcome = pool.run_without(union(found))
        if pool.search.status(outcome) != "same":
            break
        here = {point.key: point for point in outcome.points if point.nodes}
        pool.points.update({key: point for key, point in here.items() if key in pool.points})  # with what it does now
        changed = [key for key in pool.points if key in here and key not in union(found)]
    return found


def _verify(pool: DecisionPool, sets: Sequence[frozenset[str]]) -> DescentResult:
    """Run the two trials that verify a verdict."""
    keys = union(sets)
    halves = pool.verification_trials(keys)
    pool.search.run_many(halves)
    without, only = (pool.search.run(*half) for half in halves)
    gone, stays = pool.search.status(without) in ("pass", "different"), pool.search.status(only) == "same"
    culprits = build_culprits(pool.name, pool.points, sets)
    names = list_counted(c.name for c in culprits)
    if not (gone and stays):
        which = "it is not gone with them off" if not gone else "it does not fail with only them on"
        return DescentResult(notes=(f"{names} ({pool.name}) not confirmed: {which}",))
    chosen = [[point for key, point in pool.points.items() if key in one] for one in sets]
    together = [
        f"{list_counted(point.name for point in points)} fail only together"
        for points in chosen
        if len(functions_of(points) if pool.name == "frame" else points) > 1
        and pool.name not in ("node", *ONE_CULPRIT_A_SET)
    ]
    if pool.users:
        read = ", ".join(dict.fromkeys(name for key in keys for name in pool.points[key].reads))
        together.append(
            f"with {names} off, the lowerings that use what ATen computes there crash in turn: look at what makes the "
            f"values that are read there ({read})"
        )
        names = f"{names} and the lowerings after that ({len(pool.users)})"
    return DescentResult(
        culprits,
        (
            f"with exactly {names} {_OFF.get(pool.name, 'off')} {_how_it_ends(without)}",
            f"with every other {kind_name(pool.name)} {_OFF.get(pool.name, 'off')} it still fails",
        ),
        (pool.plan_without(keys | pool.users), pool.plan_with_only(keys)),
        tuple(together),
    )


def _how_it_ends(without: Outcome) -> str:
    if without.signature is None:
        return "it passes"
    return f"it is gone, and another failure shows: {without.signature.type}"
