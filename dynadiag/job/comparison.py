"""Compare the ranks of a job: which are alike, and where those that are not diverge first.

The largest group of alike ranks is compared with each other group. Differences in what ranks do come first, then cache
misses, then ranks that died, then details in which shards may differ by design."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from dynadiag.explanation.formatting import brief
from dynadiag.job.differences import RankDifference, Side, first_difference
from dynadiag.job.divergence import Divergence
from dynadiag.job.divergence_text import describe_divergence
from dynadiag.job.ended import ended_by_itself, find_dead_ranks
from dynadiag.job.processes import Job, Process
from dynadiag.job.ranks import rank_list
from dynadiag.job.trace import CompileStep


def group_alike(ranks: Sequence[Process]) -> tuple[tuple[Process, ...], ...]:
    """Return the ranks in groups of those that are alike, the largest first, of equal ones that with the lowest rank.

    Numbers, sizes and guards of compiled code may differ within a group if they belong to shards of the ranks.
    """
    groups: list[list[Process]] = []
    known: dict[tuple[object, ...], int] = {}  # from the steps, which ranks share, and failed exports to the group
    for each in ranks:
        if each.trace is None:
            continue
        did = (id(each.trace.steps), each.trace.exports)
        if did not in known:
            known[did] = _group_of(each, groups)
        groups[known[did]].append(each)
    return tuple(sorted(map(tuple, groups), key=lambda group: (-len(group), group[0].rank or 0)))


def _group_of(item: Process, groups: list[list[Process]]) -> int:
    """The number of the group whose first process is like this one; a new group if there is none."""
    for index, group in enumerate(groups):
        if _keys(group[0]) == _keys(item) and first_difference(_side(group), _side([item])) == (None, None):
            return index
    groups.append([])
    return len(groups) - 1


def _keys(item: Process) -> list[tuple[object, ...]]:
    return [] if item.trace is None else [item.trace.exports, *(step.key for step in item.trace.steps)]


def find_divergence(job: Job) -> Divergence | None:
    """Return how the ranks of a job diverge first, or None if they do not. An earlier restart goes first."""
    for restart in job.restarts:
        ranks = [each for each in job.ranks if each.restart == restart]
        found = _of_restart(job, ranks, restart) if ranks else None
        if found is not None:
            return found
    return None


def _of_restart(job: Job, ranks: Sequence[Process], restart: int) -> Divergence | None:
    groups = group_alike(ranks)
    programs, caches = [], []
    for group in groups[1:]:
        program, cache = first_difference(_side(groups[0]), _side(group))
        programs += [(group, program)] if program else []
        caches += [(group, cache)] if cache else []
    for found in (programs, caches):
        if found:
            return _earliest(groups, found, restart)
    dead = find_dead_ranks(job, ranks, restart)
    waits = any(each.uncaught is not None for each in ranks)
    if dead is not None and dead.kind == "timeout" and dead.line is None and len(groups) > 1 and not waits:
        # All ranks were cut short at unknown lines: a step that one has and another has not is all there is to tell.
        steps = [(group, first_difference(_side(groups[0], True), _side(group, True))[0]) for group in groups[1:]]
        more = [(group, step) for group, step in steps if step is not None]
        return _earliest(groups, more, restart) if more else dead
    return dead or find_outlier(groups[0], restart)


def _side(group: Sequence[Process], whole: bool | None = None) -> Side:
    """A group as its first rank, which ended by itself if any of them did; by ``whole`` where that is given."""
    trace = group[0].trace
    whole = any(ended_by_itself(each) for each in group) if whole is None else whole
    world = 0 if trace is None else trace.world_size or 0
    return Side(() if trace is None else trace.steps, group[0].rank or 0, world, whole)


def _earliest(
    groups: Sequence[Sequence[Process]], found: Sequence[tuple[Sequence[Process], RankDifference]], restart: int
) -> Divergence:
    """The difference that comes first in the order of the largest group, with all ranks that have the same one."""
    first = min((difference for _, difference in found), key=lambda each: each.position)
    differing = [each for group, difference in found if difference.site == first.site for each in group]
    known = {id(each) for each in differing}
    rest = [each for group in groups for each in group if id(each) not in known]
    return describe_divergence(first, (rest, differing), restart)


_MIN_RANKS = 3
_TEXT = 80  # characters of a guard or a type


def find_outlier(ranks: Sequence[Process], restart: int) -> Divergence | None:
    """Return the first detail in which a minority of these ranks, which are alike else, differs from the majority."""
    if len(ranks) < _MIN_RANKS or len({id(each.trace.steps) for each in ranks if each.trace}) < 2:
        return None
    for position in range(len(ranks[0].trace.steps) if ranks[0].trace else 0):
        steps = [each.trace.steps[position] for each in ranks if each.trace]
        compiles = [step for step in steps if isinstance(step, CompileStep)]
        if len(compiles) == len(ranks) and len({id(step) for step in compiles}) > 1:
            found = _of_compiles(ranks, compiles, restart)
            if found is not None:
                return found
    return None


def _of_compiles(ranks: Sequence[Process], steps: Sequence[CompileStep], restart: int) -> Divergence | None:
    details = {id(step): dict(_details(step)) for step in steps}
    names = dict.fromkeys(name for found in details.values() for name in found)
    for name in names:
        values = Counter(details[id(step)].get(name) for step in steps)
        usual, times = values.most_common(1)[0]
        if len(values) > 1 and times * 2 > len(steps):
            odd = [index for index, step in enumerate(steps) if details[id(step)].get(name) != usual]
            return _outlier_divergence(name, usual, details[id(steps[odd[0]])].get(name), odd, ranks, steps, restart)
    return None


def _details(step: CompileStep) -> Iterator[tuple[tuple[str, Hashable, int], Hashable]]:
    """Each detail of a compile by a name that it has on every rank."""
    for index, graph in enumerate(step.graphs):
        for place, (node, type_) in enumerate(zip(graph.graph.nodes, graph.types, strict=True)):
            yield ("graph", index, place), (node.call, type_)
    seen: Counter[str] = Counter()
    for guard in step.guards:
        yield ("guard", guard.source, seen[guard.source]), guard.expression
        seen[guard.source] += 1


def _outlier_divergence(
    name: tuple[str, Hashable, int],
    usual: Hashable,
    value: Hashable,
    odd: Sequence[int],
    ranks: Sequence[Process],
    steps: Sequence[CompileStep],
    restart: int,
) -> Divergence:
    numbers = tuple(ranks[index].rank or 0 for index in odd)
    others = tuple(each.rank or 0 for index, each in enumerate(ranks) if index not in set(odd))
    step, is_guard = steps[odd[0]], name[0] == "guard"
    is_input = isinstance(value, tuple) and value[0] == "placeholder"
    what = f"guards `{brief(str(value), _TEXT)}`" if is_guard else f"computes `{_node(value)}`"
    if is_input:
        node = step.graphs[int(str(name[1]))].graph.nodes[name[2]]
        what = f"takes {step.input_name(node)}, {_node(value)},"
    other = f"`{brief(str(usual), _TEXT)}`" if is_guard else _node(usual) if is_input else f"`{_node(usual)}`"
    return Divergence(
        kind="recompile" if is_guard else "graph",
        ranks=numbers,
        restart=restart,
        compile_id=step.compile.compile_id,
        file=step.compile.file,
        line=step.compile.line,
        function=step.compile.function,
        text=f"{rank_list(numbers)} {what} in {step.compile.function}, {rank_list(others)} {other}",
        cause=f"{name[1]} differs" if is_guard else None,
    )


def _node(value: Hashable) -> str:
    call, type_ = value if isinstance(value, tuple) else ("no such node", "")
    if call == "placeholder":
        return f"`{brief(str(type_), _TEXT)}`"
    return brief(f"{call}: {type_}" if type_ else str(call), _TEXT)
