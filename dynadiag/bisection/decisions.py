"""The decisions of one kind, the search among them, and the culprits that they make.

The search first tries the decisions that the failure names, then bisects by hash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynadiag.bisection.hash_search import Speculate, find_culprit_sets, find_minimal_set, suffixes
from dynadiag.bisection.trial_search import LabeledPlan, TrialSearch
from dynadiag.bisection.verdict import Culprit
from dynadiag.recording.code_origin import is_resume_function, original_name
from dynadiag.trial.decision_kinds import kind_named
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import Plan, Switch, hash_bits

_MAX_SETS = 16  # independent faults in one kind before the search gives up
_MAX_LISTED = 3  # names in a trial's label
_RARE = 24  # digits of a suffix that no other decision is likely to have
_MAX_WITNESSES = 6  # names that are tried one after another before bisection starts


@dataclass(slots=True)
class DecisionPool:
    """The decisions of one kind, and trials with some of them switched off.

    ``base`` may have switches for other kinds, which stay. ``name`` is the kind, ``points`` has its decisions by key.
    ``reported`` are the kinds that each trial reports: a failure that kills its process can name a decision in no other
    way. ``users`` are decisions that go off with the culprits, since they use the value that these crash on.
    """

    search: TrialSearch
    base: Plan
    name: str
    points: dict[str, Decision]
    reported: tuple[str, ...] = ()
    users: frozenset[str] = frozenset()
    _subsets: dict[frozenset[str], bool] = field(default_factory=dict, init=False)  # whether it failed with only these

    def plan_with_only(self, keys: Collection[str]) -> Plan:
        """The plan with exactly these on. No trial knows the frames that an excluded frame had inlined: long suffixes
        leave them out.
        """
        rare = self.name == "frame" and len(keys) < len(self.points)
        chosen = tuple(sorted(hash_bits(key)[-_RARE:] for key in keys)) if rare else suffixes(keys, self.points)
        return self._add_switch(Switch(self.name, keep=True, suffixes=chosen))

    def plan_without(self, keys: Collection[str]) -> Plan:
        """The plan with exactly these off. Frames that an excluded frame had inlined are excluded too: Python would run
        it, and Dynamo would compile them by themselves.
        """
        if self.name == "frame":
            return self.plan_with_only(self.points.keys() - keys)
        if len(keys) == len(self.points):
            return replace(self._add_switch(switch_all_off(self.name)), record=(self.name,))
        return replace(self._add_switch(Switch(self.name, False, suffixes(keys, self.points))), record=self.reported)

    def _add_switch(self, switch: Switch) -> Plan:
        return replace(self.base, switches=(*self.base.switches, switch))

    def fails_with_only(self, keys: frozenset[str]) -> bool:
        """Whether the same failure shows with exactly these on."""
        fails = self.search.status(self.search.run(*self.labeled_with_only(keys))) == "same"
        self._check_against_subsets(keys, fails)
        self._subsets[keys] = fails
        return fails

    def _check_against_subsets(self, keys: frozenset[str], fails: bool) -> None:
        """If a set passes although a subset of it fails, run both trials again: seldom does a decision hide a failure,
        more often the trials are not deterministic.
        """
        for other, other_fails in self._subsets.items():
            if (other_fails and not fails and other < keys) or (fails and not other_fails and keys < other):
                self.search.check_answers(map(self.labeled_with_only, (keys, other)))
                return

    @property
    def speculate(self) -> Speculate | None:
        """Runs the trials of `fails_with_only` for several sets at once; ``None`` if they cannot run in parallel."""
        return self.search.speculate(self.labeled_with_only, self.labeled_without)

    def run_without(self, keys: Collection[str]) -> Outcome:
        """The outcome with exactly these off."""
        return self.search.run(*self.labeled_without(keys))

    def labeled_without(self, keys: Collection[str]) -> LabeledPlan:
        """The trial with exactly these off."""
        names = self._listed(keys) or f"{len(keys)} of {len(self.points)}"
        return LabeledPlan(self.plan_without(keys), f"off: {kind_name(self.name)} {names}")

    def labeled_callees(self, keys: Iterable[str]) -> LabeledPlan:
        """The trial that leaves these frames to Python, and reports the frames that they call."""
        off = Switch(self.name, keep=False, suffixes=tuple(sorted(hash_bits(key)[-_RARE:] for key in keys)))
        return LabeledPlan(replace(self._add_switch(off), record=(self.name,)), "what it calls, compiled by itself")

    def _listed(self, keys: Collection[str]) -> str:
        """The names of few decisions; empty for many."""
        return ", ".join(sorted(self.points[k].name for k in keys)) if len(keys) <= _MAX_LISTED else ""

    def verification_trials(self, keys: Collection[str]) -> tuple[LabeledPlan, LabeledPlan]:
        """The two trials that verify a verdict: with these off the failure must be gone, with only these on it must
        stay.
        """
        return self.labeled_without(self.users.union(keys)), LabeledPlan(
            self.plan_with_only(keys), "the culprits on, the rest of their kind off"
        )

    def labeled_with_only(self, keys: Collection[str]) -> LabeledPlan:
        """The trial with exactly these on, labelled by whichever part is smaller."""
        rest = self.points.keys() - keys
        if rest and len(rest) < len(keys):
            return self.labeled_without(rest)
        which = self._listed(keys)
        named = f" ({which})" if which else ""
        label = f"{len(keys)} of {len(self.points)} {kind_plural(self.name)} on{named}, the others off"
        return LabeledPlan(self.plan_with_only(keys), label)


def switch_all_off(name: str) -> Switch:
    """The switch that turns off all decisions of a kind."""
    return Switch(name, keep=True, suffixes=())


def find_by_witness(pool: DecisionPool, failure: Outcome) -> frozenset[str] | None:
    """The decisions that the failure names, added one after another until it is gone; ``None`` if that does not
    help.
    """
    named: set[str] = set()
    outcome = failure
    for _ in range(_MAX_WITNESSES):
        new = names_decision(outcome, [point for key, point in pool.points.items() if key not in named])
        if not new:
            return frozenset(named) if pool.search.status(outcome) == "different" else None
        named |= new
        outcome = pool.run_without(named)
        if outcome.passed:
            return frozenset(named)
    return None


def names_decision(outcome: Outcome, points: Collection[Decision]) -> set[str]:
    """The keys of the decisions that the first witness of a failure matches."""
    matching = ({p.key for p in points if name in (p.key, p.name, p.target)} for name in outcome.witness)
    return next(filter(None, matching), set())


def find_by_bisection(pool: DecisionPool, known: Sequence[frozenset[str]] = ()) -> list[frozenset[str]]:
    """Minimal failing sets, one after another, until with all of them off the same failure is gone.

    ``known`` are sets that were found before. Returns none if the failure stays with the whole kind off: then no
    decision of this kind explains it.
    """
    found = list(known)
    if found and _is_irrelevant(pool, union(found)):
        return []
    if found:
        found += _find_siblings(pool, union(found))
        _add_users(pool, union(found))
    rest = frozenset(pool.points) - union(found) - pool.users
    for _ in range(_MAX_SETS):
        if not rest or (found and pool.search.status(pool.run_without(union(found) | pool.users)) != "same"):
            return found
        ordered = [key for key in pool.points if key in rest]
        found.append(find_minimal_set(ordered, pool.fails_with_only, pool.speculate) if len(rest) > 1 else rest)
        found += _find_siblings(pool, union(found))
        _add_users(pool, union(found))
        rest -= union(found) | pool.users
    return found


def _add_users(pool: DecisionPool, found: frozenset[str]) -> None:
    """Add the lowerings that use what the found ones read, where these crash too.

    Memory that is none is no fault of the kernel that reads it first: ATen hands it on, and then the next one crashes.
    """
    failure = pool.search.reference
    if pool.name != "lowering" or failure is None or failure.kind != "signal":
        return
    if pool.search.status(pool.run_without(found | pool.users)) != "same":
        return
    users = _users_of(pool, {(*_place(pool.points[key]), name) for key in found for name in pool.points[key].reads})
    users -= found | pool.users
    if users and pool.fails_with_only(users):
        pool.users |= users


def _users_of(pool: DecisionPool, values: set[tuple[str | None, str | None, str]]) -> frozenset[str]:
    """The lowerings that read one of these values, or what is computed from one, in the order of the graph."""
    users: set[str] = set()
    for key, point in pool.points.items():
        if any((*_place(point), name) in values for name in point.reads):
            users.add(key)
            values.add((*_place(point), point.name))
    return frozenset(users)


def _place(point: Decision) -> tuple[str | None, str | None]:
    return point.compile_id, point.graph


def _is_irrelevant(pool: DecisionPool, found: frozenset[str]) -> bool:
    status = pool.search.status
    return status(pool.run_without(found)) == "same" and status(pool.run_without(pool.points.keys())) == "same"


def union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """The keys of all sets together."""
    return frozenset().union(*sets)


def _find_siblings(pool: DecisionPool, found: frozenset[str]) -> list[frozenset[str]]:
    """Other decisions on the same operators, where switching off ``found`` is not enough and switching off all of them
    is.

    A wrong lowering is wrong for each node that uses it. Looking there first finds each of the others in a trial or
    two.
    """
    targets = {pool.points[key].target for key in found} - {None}
    siblings = frozenset(k for k, p in pool.points.items() if p.target in targets) - found
    if not siblings or pool.search.status(pool.run_without(found)) != "same":
        return []
    if not pool.run_without(found | siblings).passed or not pool.fails_with_only(siblings):
        return []
    return find_culprit_sets(siblings, pool.fails_with_only, pool.speculate)


ONE_CULPRIT_A_SET = ("fusion", "inline")  # kinds of which a set is one culprit: it is computed in one kernel
_MAX_CULPRITS = 3  # decisions that are listed one by one; more are grouped by operator


def build_culprits(group: str, points: Mapping[str, Decision], sets: Sequence[frozenset[str]]) -> tuple[Culprit, ...]:
    """Return the culprits for sets of decisions of one kind: one for each set of fusions, one for each function that
    graph breaks split, else one for each decision.
    """
    if group in ONE_CULPRIT_A_SET:
        return tuple(_fusion([points[k] for k in points if k in chosen]) for chosen in sets)
    keys = frozenset().union(*sets)
    chosen = [points[k] for k in points if k in keys]
    if group == "frame":
        return tuple(replace(_culprit(parts[-1:]), name=original_name(parts[0].name)) for parts in functions_of(chosen))
    return _culprits(chosen)


def functions_of(frames: Iterable[Decision]) -> list[list[Decision]]:
    """The frames of each function: what follows a graph break is a frame of its own."""
    found: list[list[Decision]] = []
    for frame in frames:
        whole = [parts for parts in found if is_resume_function(frame.name) and _function(parts[0]) == _function(frame)]
        if whole:
            whole[-1].append(frame)
        else:
            found.append([frame])
    return found


def _function(frame: Decision) -> tuple[str, list[str]]:
    return original_name(frame.name), [file for file, _ in frame.lines]


def _fusion(parts: Sequence[Decision]) -> Culprit:
    names = dict.fromkeys(name for part in parts for name in part.name.split("+"))
    lines = tuple(dict.fromkeys(line for part in parts for line in part.lines))
    return Culprit("fusion", "+".join(names), parts[0].compile_id, _graph(parts[0]), lines)


def _culprits(points: Sequence[Decision]) -> tuple[Culprit, ...]:
    """One culprit per decision. If they are many, one per operator, with its nodes listed."""
    grouped: dict[str, list[Decision]] = {}
    for point in points:
        grouped.setdefault(point.target or point.key, []).append(point)
    if len(points) <= _MAX_CULPRITS:
        grouped = {point.key: [point] for point in points}
    return tuple(_culprit(group) for group in grouped.values())


def _culprit(points: Sequence[Decision]) -> Culprit:
    first = points[0]
    lines = tuple(dict.fromkeys(line for point in points for line in point.lines))
    nodes = tuple(point.name for point in points) if len(points) > 1 else first.nodes
    return Culprit(kind_name(first.group), first.name, first.compile_id, _graph(first), lines, nodes)


def _graph(point: Decision) -> str | None:
    return None if point.graph == "dynamo" else point.graph


def kind_plural(group: str) -> str:
    """The kind's name in the plural, for messages."""
    return kind_name(group) + ("es" if group.endswith("s") else "s")


def kind_name(group: str) -> str:
    """The kind's name for users: a Dynamo graph is a graph, and a value that its reader computes is fused with it."""
    return kind_named(group).label or group
