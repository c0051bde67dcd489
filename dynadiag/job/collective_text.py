"""In which collective two ranks differ, in words: of the program, of compiled code or of C++."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.diff import CanonicalNode
from dynadiag.explanation.formatting import brief
from dynadiag.job.differences import RankDifference
from dynadiag.job.divergence import DivergenceText, Location, compile_location
from dynadiag.job.ended import ended_by_itself, last_place
from dynadiag.job.graph_text import describe_graphs, line_of, node_location, node_text
from dynadiag.job.processes import Process
from dynadiag.job.ranks import does_not, with_verb
from dynadiag.job.trace import CollectiveStep, CompileStep, UnseenStep
from dynadiag.recording.records import Collective, Frame

__all__ = ["describe_collectives"]


def describe_collectives(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    """Describe a collective that only one side begins, or two that differ."""
    if isinstance(found.step, CompileStep):
        return (_one_function if found.other_step is None else describe_graphs)(found, doing, others)
    one, two = found.step, found.other_step
    if isinstance(one, UnseenStep) or isinstance(two, UnseenStep):
        return _unseen(found, doing, others)
    here = one.collective if isinstance(one, CollectiveStep) else None
    there = two.collective if isinstance(two, CollectiveStep) else None
    assert here is not None or there is not None
    groups = [each.group if isinstance(each, CollectiveStep) else "" for each in (one, two)]
    own = [
        f" in process group {each.removeprefix('#')}" if all(groups) and len({*groups}) > 1 else "" for each in groups
    ]
    peers = [
        f" with root {each.peer}"
        if each and each.peer is not None and here and there and here.peer != there.peer
        else ""
        for each in (here, there)
    ]
    issued = [
        f"{_operation(each)}{group}{peer} at line {each.line}" if each else None
        for each, group, peer in zip((here, there), own, peers, strict=True)
    ]
    if isinstance(one, CollectiveStep) and isinstance(two, CollectiveStep) and one.key == two.key:
        issued = [
            f"`{brief(each.statement or each.collective.op)}` at line {each.collective.line}" for each in (one, two)
        ]
    if here is None:
        text = f"{with_verb(others, 'issue')} {issued[1]}, {does_not(doing)}{_goes_on(found, doing)}"
    elif there is None:
        text = f"{with_verb(doing, 'issue')} {issued[0]}, {does_not(others)}{_goes_on(found, others)}"
    else:
        text = f"{with_verb(doing, 'issue')} {issued[0]} where {with_verb(others, 'issue')} {issued[1]}"
    at = here or there
    assert at is not None
    return DivergenceText(text, (at.file, at.line, at.function or "?"), None, ("ranks.collectives",))


def _one_function(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    """A compiled function with collectives that only some ranks run."""
    assert isinstance(found.step, CompileStep)
    assert found.node is not None
    location = node_location(found, doing, others)
    text = (
        f"{with_verb(doing, 'compile')} {location[2]}, whose first collective is `{node_text(found.node)}` "
        f"(line {location[1]}), {does_not(others)}"
    )
    return DivergenceText(text, location, None, ("ranks.collectives",))


def _operation(item: Collective) -> str:
    """A collective with what it is about: ``all_reduce of (4,) float32``, ``barrier``."""
    return f"{item.op} of {item.sizes} {item.dtypes}" if item.dtypes else item.op


def _goes_on(found: RankDifference, ranks: Sequence[Process]) -> str:
    """What these ranks do, which lack a collective that the others issue."""
    if found.instead is not None:
        after = found.instead.collective
        return f" and {'goes' if len(ranks) == 1 else 'go'} on with {_operation(after)} at line {after.line}"
    return ": it had ended" if ended_by_itself(ranks[0]) else ""


def _unseen(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    """More collectives of compiled code or C++ on some ranks."""
    counts = [step.count if isinstance(step, UnseenStep) else 0 for step in (found.step, found.other_step)]
    more, fewer = (doing, others) if counts[0] > counts[1] else (others, doing)
    number = abs(counts[0] - counts[1])
    node, location = _compiled_collective(more[0], min(counts))
    what = "one more collective" if number == 1 else f"{number} more collectives"
    where = "of compiled code or C++ (such as DDP's gradients)"
    if node is not None:
        where = f"of the compiled {location[2]} (`{node_text(node)}`, line {location[1]})"
    elif location[0] is None and found.instead is not None:
        after = found.instead.collective
        location = after.file, after.line, after.function or "?"
    text = f"{with_verb(more, 'begin')} {what} {where}, {does_not(fewer)}{_goes_on(found, fewer)}"
    return DivergenceText(text, location, None, ("ranks.collectives",))


def _compiled_collective(item: Process, before: int) -> tuple[CanonicalNode | None, Location]:
    """The collective of a graph that a rank begins after so many, if its graphs have any, and its line.

    Which one is known if all are in one function, or from the function in which the rank was last.
    """
    place = last_place(item)
    steps = [step for step in (item.trace.compiles if item.trace else ()) if any(g.collectives for g in step.graphs)]
    names = {step.compile.function for step in steps}
    steps = [step for step in steps if len(names) == 1 or _is_in(place, step.compile.function)]
    found = [
        (index, node) for index, graph in enumerate(steps[0].graphs if steps else ()) for node in graph.collectives
    ]
    if not found:
        return None, (None, None, "?") if place is None else (place.file, place.line, place.function)
    graph, node = found[before % len(found) if len(names) == 1 else 0]
    compiled = steps[0].compile
    frame = line_of(item, compiled.compile_id, graph, node)
    file, line, _ = compile_location(compiled) if frame is None else (frame.file, frame.line, "")
    return node, (file, line, compiled.function)


def _is_in(place: Frame | None, function: str) -> bool:
    return place is not None and place.function.rpartition(".")[2] == function.rpartition(".")[2]
