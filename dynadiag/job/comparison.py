"""Compare the ranks of a job: which are alike, and where those that are not diverge first.

The largest group of alike ranks is compared with each other group. Differences in what ranks do come first, then cache
misses, then ranks that died, then details in which shards may differ by design.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.job.differences import RankDifference, Side, first_difference
from dynadiag.job.divergence import Divergence
from dynadiag.job.divergence_text import describe_divergence
from dynadiag.job.ended import ended_by_itself, find_dead_ranks
from dynadiag.job.outliers import find_outlier
from dynadiag.job.processes import Job, Process

__all__ = ["find_divergence", "group_alike"]


def group_alike(ranks: Sequence[Process]) -> tuple[tuple[Process, ...], ...]:
    """Return the ranks in groups of those that are alike, the largest first, of equal ones that with the lowest rank.

    Numbers, sizes and guards of compiled code may differ within a group if they belong to shards of the ranks.
    """
    groups: list[list[Process]] = []
    known: dict[int, int] = {}  # from the steps, which ranks share, to the group
    for each in ranks:
        if each.trace is None:
            continue
        steps = id(each.trace.steps)
        if steps not in known:
            known[steps] = _group_of(each, groups)
        groups[known[steps]].append(each)
    return tuple(sorted(map(tuple, groups), key=lambda group: (-len(group), group[0].rank or 0)))


def _group_of(item: Process, groups: list[list[Process]]) -> int:
    """The number of the group whose first process is like this one; a new group if there is none."""
    for index, group in enumerate(groups):
        if _keys(group[0]) == _keys(item) and first_difference(_side(group), _side([item])) == (None, None):
            return index
    groups.append([])
    return len(groups) - 1


def _keys(item: Process) -> list[tuple[object, ...]]:
    return [] if item.trace is None else [step.key for step in item.trace.steps]


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
