"""A divergence in words: what one rank did and the others did not, at which line of the user's, why, and what helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.diff import CanonicalNode
from dynadiag.diff.environment_differences import changed_options
from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.breaks import operator_error
from dynadiag.explanation.changes import main_changes
from dynadiag.explanation.formatting import brief, duration, list_some
from dynadiag.explanation.guard_text import described, input_names, source_text
from dynadiag.explanation.guards import complete
from dynadiag.job.causes import ValueDifference, find_value_difference, values_on
from dynadiag.job.differences import RankDifference
from dynadiag.job.divergence import Divergence
from dynadiag.job.ended import describe_ends, ended_by_itself, last_place
from dynadiag.job.processes import Process
from dynadiag.job.ranks import rank_list
from dynadiag.job.trace import CollectiveStep, CompileStep, UnseenStep, kind_of_type
from dynadiag.recording.code_origin import is_user_file, user_frame
from dynadiag.recording.opening import open_recording
from dynadiag.recording.records import Collective, Compile, Frame, Recompile

__all__ = ["describe_divergence"]

_TYPE = re.compile(r"(?<=\])\[.*$")  # strides and device after dtype and sizes
_SYMBOL = "Sym("  # the type of a size among the inputs of a graph
_NODE = 100  # characters of a node of a graph

Location = tuple[str | None, int | None, str]  # file, line, function
Sides = tuple[Sequence[Process], Sequence[Process]]


@dataclass(frozen=True, slots=True)
class _DivergenceText:
    """What is specific to a kind: text, location, cause, keys of advice, and sentences on what follows."""

    text: str
    location: Location
    cause: str | None = None
    advice: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()


def describe_divergence(found: RankDifference, sides: Sides, restart: int) -> Divergence:
    """Return the divergence of two sets of ranks. The sides are those of the difference, with all their ranks."""
    doing, others = sides[found.unusual], sides[1 - found.unusual]
    specific = _DESCRIBERS[found.kind](found, doing, others)
    fewer, more = (others, doing) if len(others) < len(doing) else (doing, others)
    step = found.step if isinstance(found.step, CompileStep) else _other_step(found)
    file, line, function = specific.location
    return Divergence(
        kind=found.kind,
        ranks=_numbers(fewer),
        others=_numbers(more),
        restart=restart,
        compile_id=step.compile.compile_id if isinstance(step, CompileStep) else None,
        file=file,
        line=line,
        function=function,
        text=specific.text,
        cause=specific.cause,
        consequences=(*specific.follows, *describe_ends([*doing, *others])),
        advice=tuple(map(advice, specific.advice)),
    )


def _other_step(found: RankDifference) -> object:
    return (found.first, found.second)[1 - found.unusual]


def _number(item: Process) -> int:
    return item.rank or 0


def _numbers(ranks: Sequence[Process]) -> tuple[int, ...]:
    return tuple(sorted(map(_number, ranks)))


def _ranks(ranks: Sequence[Process]) -> str:
    return rank_list(_numbers(ranks))


def _does_not(ranks: Sequence[Process]) -> str:
    return f"{_ranks(ranks)} {'does' if len(ranks) == 1 else 'do'} not"


def _verb(ranks: Sequence[Process], verb: str) -> str:
    """``rank 1 breaks``, ``ranks 1-3 break``."""
    singular = f"{verb}es" if verb.endswith(("ss", "sh")) else f"{verb}s"
    return f"{_ranks(ranks)} {singular if len(ranks) == 1 else verb}"


def _compile_location(item: Compile) -> Location:
    """The function that was compiled; if it is torch's, the user's line that calls it."""
    if not _is_users(item.file) and (own := [each for each in item.user_stack if _is_users(each.file)]):
        return own[-1].file, own[-1].line, own[-1].function
    return item.file, item.line, item.function


def _is_users(file: str | None) -> bool:
    return file is not None and is_user_file(file)


def _recompile(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> _DivergenceText:
    step = found.step
    assert isinstance(step, CompileStep)
    assert step.recompile is not None
    own = main_changes([complete(each) for each in step.recompile.reasons])
    why = described(own[0]) if own else "no reason was recorded"
    again = [each for each in (doing[0].trace.compiles if doing[0].trace else ()) if each.recompile is not None]
    same = [each for each in again if each.label == step.label]
    text = (
        f"{_verb(doing, 'compile')} {step.compile.function} again (compile {step.compile.compile_id}), "
        f"{_does_not(others)}: {why}"
    )
    spent = sum(each.compile.seconds.total or 0.0 for each in same)
    follows = (
        f"{_ranks(doing[:1])} compiles it again {len(same)} times in all, {duration(spent)} in which the others wait",
    )
    return _DivergenceText(
        text,
        _recompile_location(step.recompile, step.compile),
        _option_cause(found, doing, others) or why,
        ("ranks.sizes", "ranks.collectives_agree")
        if own and own[0].parsed.kind in ("size", "stride", "shape")
        else ("ranks.value",),
        follows if len(same) > 1 else (),
    )


def _recompile_location(item: Recompile, compile_: Compile) -> Location:
    """The user's line of the guard that failed, else that of the function."""
    reason = next((each for each in item.reasons if _is_users(each.file)), None)
    return (reason.file, reason.line, item.function) if reason is not None else _compile_location(compile_)


def _break(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> _DivergenceText:
    item = found.brk
    assert item is not None
    frame = None if _is_users(item.span.file) else user_frame(item)
    location = (frame.file, frame.line, frame.function) if frame else (item.span.file, item.span.line, item.function)
    id_ = f"{item.gb_id}, " if item.gb_id else ""
    follows = _other_collectives(found, doing, others)
    text = f"{_verb(doing, 'break')} the graph of {item.function} ({id_}{item.gb_type or item.reason})"
    if item.fatal:
        text = f"{_verb(doing, 'fail')} to compile {item.function} ({operator_error(item) or f'{id_}{item.gb_type}'})"
    return _DivergenceText(
        f"{text}, {_does_not(others)}",
        location,
        _value_cause(found, doing, others, location) or item.reason or None,
        ("ranks.code",),
        follows,
    )


def _other_collectives(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> tuple[str, ...]:
    """That the collectives of the graphs differ too, where they do: most often that is what stops the job."""
    numbers = [
        sum(len(graph.collectives) for graph in step.graphs) if isinstance(step, CompileStep) else 0
        for step in (found.step, _other_step(found))
    ]
    if numbers[0] == numbers[1]:
        return ()
    return (
        f"the first graph of {_ranks(doing)} then has {numbers[0]} of the collectives, "
        f"that of {_ranks(others)} has {numbers[1]}",
    )


def _node_difference(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> _DivergenceText:
    step = found.step
    assert isinstance(step, CompileStep)
    function = step.compile.function
    node, other = _as_printed(step, found, found.node), _as_printed(_other_step(found), found, found.other_node)
    location = _node_place(found, doing, others)
    where = f" (line {location[1]})" if location[1] is not None else ""
    second = _other_step(found)
    assert isinstance(second, CompileStep)
    symbolic = [_has_symbols(each, found.graph) for each in (step, _other_step(found))]
    if second.label != step.label and node is not None and other is not None:
        at = _line_of(others[0], second.compile.compile_id, found.graph, other)
        text = (
            f"{_verb(doing, 'compile')} {function}, whose first collective is `{_short(node)}`{where}, where "
            f"{_verb(others, 'compile')} {second.compile.function}, whose first is `{_short(other)}`"
            + (f" (line {at.line})" if at is not None else "")
        )
    elif symbolic[0] != symbolic[1]:
        dynamic, static = (doing, others) if symbolic[0] else (others, doing)
        text = f"{_verb(dynamic, 'compile')} {function} for sizes that may change, {_ranks(static)} for fixed ones"
    elif node is None and other is None:
        count = [len(each.graphs) if isinstance(each, CompileStep) else 0 for each in (step, _other_step(found))]
        text = f"{_ranks(doing)} makes {count[0]} graphs of {function}, {_ranks(others)} {count[1]}"
    elif node is not None and other is None:
        text = (
            f"the graph of {function} on {_ranks(doing)} has `{_short(node)}`{where}, that of {_ranks(others)} has not"
        )
    elif node is None and other is not None:
        text = (
            f"the graph of {function} on {_ranks(others)} has `{_short(other)}`{where}, that of {_ranks(doing)} has not"
        )
    else:
        assert node is not None
        assert other is not None
        here, there = _apart(node, other)
        text = f"the graph of {function} has `{here}` on {_ranks(doing)}, `{there}` on {_ranks(others)}"
    key = "ranks.collectives" if found.kind == "collective" else "ranks.branch"
    return _DivergenceText(text, location, _value_cause(found, doing, others, location), (key,))


def _as_printed(step: object, found: RankDifference, node: CanonicalNode | None) -> CanonicalNode | None:
    """A node with its sizes and whole numbers, which are left out where graphs are compared."""
    nodes = step.graphs[found.graph].graph.nodes if isinstance(step, CompileStep) and node is not None else ()
    return next((each for each in nodes if node is not None and each.name == node.name), node)


def _has_symbols(step: object, graph: int) -> bool:
    """Whether a graph takes sizes as inputs: it is for any of them."""
    nodes = step.graphs[graph].graph.nodes if isinstance(step, CompileStep) and graph < len(step.graphs) else ()
    return any(node.target == "placeholder" and node.type.startswith(_SYMBOL) for node in nodes)


def _value_cause(
    found: RankDifference, doing: Sequence[Process], others: Sequence[Process], location: Location
) -> str | None:
    """The guarded value that differs between the ranks, where one does."""
    value = _value_difference(found, location[1])
    if value is None:
        return _input_cause(found, doing, others) or _option_cause(found, doing, others)
    at = f" (line {value.line})" if value.line is not None and value.line != location[1] else ""
    known = [
        f"{values_on(_same_compiles(each, step), value.source)} on {_ranks(each)}"
        for each, step in ((doing, found.step), (others, _other_step(found)))
    ]
    between = "; " if any("," in each for each in known) else ", "
    return f"`{source_text(value.source)}` is {between.join(known)}{at}"


def _same_compiles(ranks: Sequence[Process], step: object) -> Iterator[CompileStep]:
    """The compile of a step on each of these ranks."""
    for each in (each for item in sorted(ranks, key=_number) if item.trace for each in item.trace.compiles):
        if isinstance(step, CompileStep) and (each.label, each.compile.compile_id) == (
            step.label,
            step.compile.compile_id,
        ):
            yield each


def _input_cause(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> str | None:
    """The input of the graph that has another dtype or number of dimensions on these ranks."""
    step, other = found.step, _other_step(found)
    if found.node is None or not (isinstance(step, CompileStep) and isinstance(other, CompileStep)):
        return None
    graphs = [each.graphs[found.graph].graph.nodes for each in (step, other)]
    for here, there in zip(*graphs, strict=False):
        if here.type.startswith(_SYMBOL) or there.type.startswith(_SYMBOL):
            return None  # further inputs are not the same ones
        if here.target == there.target == "placeholder" and kind_of_type(here.type) != kind_of_type(there.type):
            (name,) = input_names([here.name], (guard.source for guard in step.guards))
            types = [_TYPE.sub("", node.type) for node in (here, there)]
            return f"the input `{name}` is {types[0]} on {_ranks(doing)}, {types[1]} on {_ranks(others)}"
    return None


def _option_cause(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> str | None:
    """torch's options that these ranks compile with and the others do not, with the line that sets them."""
    step, other = found.step, _other_step(found)
    if not (isinstance(step, CompileStep) and isinstance(other, CompileStep)):
        return None
    ids = other.compile.compile_id, step.compile.compile_id
    with open_recording(others[0].path) as before, open_recording(doing[0].path) as after:
        changes = changed_options(before, after, ids)
    told = [
        f"`{each.name}` is {each.now} on {_ranks(doing)}, {each.was} on {_ranks(others)}"
        + (f" (line {each.line})" if each.line is not None else "")
        for each in changes
    ]
    return list_some(told) if told else None


def _value_difference(found: RankDifference, line: int | None) -> ValueDifference | None:
    step, other = found.step, _other_step(found)
    if isinstance(step, CompileStep) and isinstance(other, CompileStep):
        return find_value_difference(step, other, line)
    return None


def _short(node: CanonicalNode) -> str:
    """A node on one line; of a collective what it is called by and what it is about: ``all_reduce of f32[24]``."""
    if "_c10d_functional" in node.target:
        return brief(f"{node.target.rpartition('.')[2]} of {_TYPE.sub('', node.type)}", _NODE)
    call = node.text or node.call
    return brief(f"{call}: {_TYPE.sub('', node.type)}" if node.type else call, _NODE)


def _apart(one: CanonicalNode, two: CanonicalNode) -> tuple[str, str]:
    """Two nodes, with their arguments where they differ in nothing else."""
    short = _short(one), _short(two)
    return short if short[0] != short[1] else (brief(one.call, _NODE), brief(two.call, _NODE))


def _node_place(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> Location:
    """The user's line of the node that differs: of the unusual one if there is one."""
    sides = ((found.step, doing, found.node), (_other_step(found), others, found.other_node))
    for step, ranks, node in sides:
        if isinstance(step, CompileStep) and node is not None:
            frame = _line_of(ranks[0], step.compile.compile_id, found.graph, node)
            if frame is not None:
                return frame.file, frame.line, step.compile.function
    step = found.step if isinstance(found.step, CompileStep) else _other_step(found)
    assert isinstance(step, CompileStep)
    value = _value_difference(found, None)
    if value is not None and _is_users(value.file):
        return value.file, value.line, step.compile.function
    return _compile_location(step.compile)


def _line_of(item: Process, compile_id: str, graph: int, node: CanonicalNode) -> Frame | None:
    """The user's line of a node, as the recording has it; of a collective in torch's code the line that calls it."""
    with open_recording(item.path) as recording:
        graphs = [each for each in recording.graphs(compile_id) if each.stage == "dynamo"]
        nodes = recording.nodes(graphs[graph].index) if graph < len(graphs) else ()
    spans = [each.span for each in nodes if each.name == node.name and _is_users(each.span.file)]
    if spans and spans[0].file is not None:
        return Frame(spans[0].file, spans[0].line, "")
    at = node.source_line
    return Frame(at.file, at.line, "") if at is not None and _is_users(at.file) else None


def _collective(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> _DivergenceText:
    if isinstance(found.step, CompileStep):
        return (_one_function if _other_step(found) is None else _node_difference)(found, doing, others)
    one, two = found.step, _other_step(found)
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
        text = f"{_verb(others, 'issue')} {issued[1]}, {_does_not(doing)}{_goes_on(found, doing)}"
    elif there is None:
        text = f"{_verb(doing, 'issue')} {issued[0]}, {_does_not(others)}{_goes_on(found, others)}"
    else:
        text = f"{_verb(doing, 'issue')} {issued[0]} where {_verb(others, 'issue')} {issued[1]}"
    at = here or there
    assert at is not None
    return _DivergenceText(text, (at.file, at.line, at.function or "?"), None, ("ranks.collectives",))


def _one_function(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> _DivergenceText:
    """A compiled function with collectives that only some ranks run."""
    assert isinstance(found.step, CompileStep)
    assert found.node is not None
    location = _node_place(found, doing, others)
    text = (
        f"{_verb(doing, 'compile')} {location[2]}, whose first collective is `{_short(found.node)}` "
        f"(line {location[1]}), {_does_not(others)}"
    )
    return _DivergenceText(text, location, None, ("ranks.collectives",))


def _operation(item: Collective) -> str:
    """A collective with what it is about: ``all_reduce of (4,) float32``, ``barrier``."""
    return f"{item.op} of {item.sizes} {item.dtypes}" if item.dtypes else item.op


def _goes_on(found: RankDifference, ranks: Sequence[Process]) -> str:
    """What these ranks do, which lack a collective that the others issue."""
    if found.instead is not None:
        after = found.instead.collective
        return f" and {'goes' if len(ranks) == 1 else 'go'} on with {_operation(after)} at line {after.line}"
    return ": it had ended" if ended_by_itself(ranks[0]) else ""


def _unseen(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> _DivergenceText:
    """More collectives of compiled code or C++ on some ranks."""
    counts = [step.count if isinstance(step, UnseenStep) else 0 for step in (found.step, _other_step(found))]
    more, fewer = (doing, others) if counts[0] > counts[1] else (others, doing)
    number = abs(counts[0] - counts[1])
    node, location = _compiled_collective(more[0], min(counts))
    what = "one more collective" if number == 1 else f"{number} more collectives"
    where = "of compiled code or C++ (such as DDP's gradients)"
    if node is not None:
        where = f"of the compiled {location[2]} (`{_short(node)}`, line {location[1]})"
    elif location[0] is None and found.instead is not None:
        after = found.instead.collective
        location = after.file, after.line, after.function or "?"
    text = f"{_verb(more, 'begin')} {what} {where}, {_does_not(fewer)}{_goes_on(found, fewer)}"
    return _DivergenceText(text, location, None, ("ranks.collectives",))


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
    frame = _line_of(item, compiled.compile_id, graph, node)
    file, line, _ = _compile_location(compiled) if frame is None else (frame.file, frame.line, "")
    return node, (file, line, compiled.function)


def _is_in(place: Frame | None, function: str) -> bool:
    return place is not None and place.function.rpartition(".")[2] == function.rpartition(".")[2]


def _skip(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> _DivergenceText:
    step = _other_step(found)
    assert isinstance(step, CompileStep)
    skipped = found.step
    if isinstance(skipped, CompileStep):
        why = skipped.compile.reason or "Dynamo left it to Python"
    else:
        why = _why_not_compiled(doing[0], step.compile)
    collectives = sum(len(graph.collectives) for graph in step.graphs)
    issued = [each for each in (doing[0].trace.steps if doing[0].trace else ()) if isinstance(each, CollectiveStep)]
    inside = [each for each in issued if each.collective.function == step.compile.function.rpartition(".")[2]]
    follows = (
        f"the compiled graph of {_ranks(others)} has {collectives} collectives, which Inductor may bucket; "
        f"{_ranks(doing)} issues its own one by one",
    )
    return _DivergenceText(
        f"{_verb(others, 'compile')} {step.compile.function}, {_ranks(doing)} "
        f"{'runs' if len(doing) == 1 else 'run'} it uncompiled or not at all: {why}",
        _compile_location(step.compile),
        why,
        ("ranks.compile",),
        follows if collectives and inside else (),
    )


def _why_not_compiled(item: Process, compiled: Compile) -> str:
    """What is known of why a rank compiled nothing."""
    trace = item.trace
    if trace is not None:
        if trace.stances:
            return f"torch.compiler.set_stance({', '.join(map(repr, sorted(trace.stances)))}) is set there"
        if trace.disabled:
            return "the environment disables torch.compile there"
        for frame in trace.skipped:
            if (frame.file, frame.line) == (compiled.file, compiled.line):
                return frame.reason
        if not trace.compiles:
            return "no call of a compiled function was recorded there"
    return "no call of it through torch.compile was recorded there"


def _cache(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> _DivergenceText:
    step, other = found.step, _other_step(found)
    assert isinstance(step, CompileStep)
    assert isinstance(other, CompileStep)
    spent, saved = step.compile.seconds.total, other.compile.seconds.total
    text = (
        f"the FX graph cache answers {step.compile.function} with a {step.compile.cache} on {_ranks(doing)}, "
        f"with a {other.compile.cache} on {_ranks(others)}"
    )
    if step.compile.cache is None:
        text = (
            f"{_verb(doing, 'compile')} {step.compile.function} without the FX graph cache, a hit on {_ranks(others)}"
        )
    times = f": {duration(spent)} there, {duration(saved)} here" if spent is not None and saved is not None else ""
    return _DivergenceText(
        text + times,
        _compile_location(step.compile),
        _option_cause(found, doing, others),
        ("ranks.cache",),
    )


_DESCRIBERS: dict[str, Callable[[RankDifference, Sequence[Process], Sequence[Process]], _DivergenceText]] = {
    "recompile": _recompile,
    "break": _break,
    "graph": _node_difference,
    "collective": _collective,
    "skip": _skip,
    "cache": _cache,
}
