"""A divergence in words: what one rank did and the others did not, at which line of the user's, why, and what helps.

Two ranks compile one function differently because a guarded value, an input or an option of torch differs. What
describes a divergence chooses the remedies by what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.diff.canonical_graph import CanonicalNode
from dynadiag.diff.environment_differences import changed_options
from dynadiag.explanation.breaks import operator_error
from dynadiag.explanation.changes import main_changes
from dynadiag.explanation.formatting import brief, duration, list_some
from dynadiag.explanation.guard_text import described
from dynadiag.explanation.remedy import Remedy, advise
from dynadiag.job.differences import RankDifference
from dynadiag.job.divergence import Divergence, DivergenceText, Location, compile_location
from dynadiag.job.ended import describe_ends, ended_by_itself, last_place
from dynadiag.job.processes import Process
from dynadiag.job.ranks import does_not, name_ranks, rank_numbers, with_verb
from dynadiag.job.trace import (
    COLLECTIVES,
    CollectiveStep,
    CompileStep,
    GuardedValue,
    UnseenStep,
    is_size,
    kind_of_type,
    short_type,
)
from dynadiag.recording.code_origin import is_user_file, user_frame
from dynadiag.recording.opening import open_recording
from dynadiag.recording.records import Collective, Compile, Frame
from dynadiag.recording.torch_text.guards import guarded_value
from dynadiag.recording.torch_text.sources import source_text

_NODE = 100  # characters of a node of a graph


def describe_graphs(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    """Describe two compiles whose graphs differ: in a node, in their number, or in what they are compiled for."""
    step, second = found.step, found.other_step
    assert isinstance(step, CompileStep)
    assert isinstance(second, CompileStep)
    function = step.compile.function
    node, other = _as_printed(step, found, found.node), _as_printed(second, found, found.other_node)
    location = node_location(found, doing, others)
    where = f" (line {location[1]})" if location[1] is not None else ""
    symbolic = [_has_sizes(each, found.graph) for each in (step, second)]
    if second.label != step.label and node is not None and other is not None:
        at = line_of(others[0], second.compile.compile_id, found.graph, other)
        text = (
            f"{with_verb(doing, 'compile')} {function}, whose first collective is `{node_text(node)}`{where}, where "
            f"{with_verb(others, 'compile')} {second.compile.function}, whose first is `{node_text(other)}`"
            + (f" (line {at.line})" if at is not None else "")
        )
    elif symbolic[0] != symbolic[1]:
        dynamic, static = (doing, others) if symbolic[0] else (others, doing)
        text = (
            f"{with_verb(dynamic, 'compile')} {function} for sizes that may change, {name_ranks(static)} for fixed ones"
        )
    elif node is not None and other is not None:
        short = node_text(node), node_text(other)
        here, there = short if short[0] != short[1] else (brief(node.call, _NODE), brief(other.call, _NODE))
        text = f"the graph of {function} has `{here}` on {name_ranks(doing)}, `{there}` on {name_ranks(others)}"
    elif (only := node or other) is not None:
        has, lacks = (doing, others) if only is node else (others, doing)
        text = (
            f"the graph of {function} on {name_ranks(has)} has `{node_text(only)}`{where}, "
            f"that of {name_ranks(lacks)} has not"
        )
    else:
        count = [len(each.graphs) for each in (step, second)]
        text = f"{name_ranks(doing)} makes {count[0]} graphs of {function}, {name_ranks(others)} {count[1]}"
    key = "ranks.collectives" if found.kind == "collective" else "ranks.branch"
    return DivergenceText(text, location, value_cause(found, doing, others, location), (key,))


def _as_printed(step: CompileStep, found: RankDifference, node: CanonicalNode | None) -> CanonicalNode | None:
    """A node with its sizes and whole numbers, which are left out where graphs are compared."""
    if node is None:
        return None
    return next((each for each in step.graphs[found.graph].graph.nodes if each.name == node.name), node)


def _has_sizes(step: CompileStep, graph: int) -> bool:
    """Whether a graph takes sizes as inputs: it is for any of them."""
    nodes = step.graphs[graph].graph.nodes if graph < len(step.graphs) else ()
    return any(node.target == "placeholder" and is_size(node) for node in nodes)


def node_text(node: CanonicalNode) -> str:
    """A node on one line; of a collective what it is called by and what it is about: ``all_reduce of f32[24]``."""
    if COLLECTIVES in node.target:
        return brief(f"{node.target.rpartition('.')[2]} of {short_type(node.type)}", _NODE)
    call = node.text or node.call
    return brief(f"{call}: {short_type(node.type)}" if node.type else call, _NODE)


def node_location(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> Location:
    """The user's line of the node that differs: of the unusual one if there is one."""
    sides = ((found.step, doing, found.node), (found.other_step, others, found.other_node))
    for step, ranks, node in sides:
        if isinstance(step, CompileStep) and node is not None:
            frame = line_of(ranks[0], step.compile.compile_id, found.graph, node)
            if frame is not None:
                return frame.file, frame.line, step.compile.function
    step = found.step if isinstance(found.step, CompileStep) else found.other_step
    assert isinstance(step, CompileStep)
    value = value_difference(found, None)
    if value is not None and is_user_file(value.file):
        return value.file, value.line, step.compile.function
    return compile_location(step.compile)


def line_of(item: Process, compile_id: str, graph: int, node: CanonicalNode) -> Frame | None:
    """The user's line of a node, as the recording has it; of a collective in torch's code the line that calls it."""
    with open_recording(item.path) as recording:
        graphs = [each for each in recording.graphs(compile_id) if each.stage == "dynamo"]
        nodes = recording.nodes(graphs[graph].index) if graph < len(graphs) else ()
    spans = [each.span for each in nodes if each.name == node.name and is_user_file(each.span.file)]
    if spans and spans[0].file is not None:
        return Frame(spans[0].file, spans[0].line, "")
    at = node.source_line
    return Frame(at.file, at.line, "") if at is not None and is_user_file(at.file) else None


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


Sides = tuple[Sequence[Process], Sequence[Process]]


def describe_divergence(found: RankDifference, sides: Sides, restart: int) -> Divergence:
    """Return the divergence of two sets of ranks. The sides are those of the difference, with all their ranks."""
    doing, others = sides[found.unusual], sides[1 - found.unusual]
    specific = _DESCRIBERS[found.kind](found, doing, others)
    fewer = others if len(others) < len(doing) else doing
    step = found.step if isinstance(found.step, CompileStep) else found.other_step
    file, line, function = specific.location
    return Divergence(
        kind=found.kind,
        ranks=tuple(sorted(rank_numbers(fewer))),
        restart=restart,
        compile_id=step.compile.compile_id if isinstance(step, CompileStep) else None,
        file=file,
        line=line,
        function=function,
        text=specific.text,
        cause=specific.cause,
        consequences=(*specific.follows, *describe_ends([*doing, *others])),
        advice=advise([RANKS[key] for key in specific.advice], found),
    )


def _recompile(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    step = found.step
    assert isinstance(step, CompileStep)
    assert step.recompile is not None
    own = main_changes(step.recompile.reasons)
    why = described(own[0]) if own else "no reason was recorded"
    again = [each for each in (doing[0].trace.compiles if doing[0].trace else ()) if each.recompile is not None]
    same = [each for each in again if each.label == step.label]
    text = (
        f"{with_verb(doing, 'compile')} {step.compile.function} again (compile {step.compile.compile_id}), "
        f"{does_not(others)}: {why}"
    )
    spent = sum(each.compile.seconds.total or 0.0 for each in same)
    follows = (
        f"{name_ranks(doing[:1])} compiles it again {len(same)} times in all, "
        f"{duration(spent)} in which the others wait",
    )
    reason = next((each for each in step.recompile.reasons if is_user_file(each.file)), None)
    return DivergenceText(
        text,
        (reason.file, reason.line, step.recompile.function) if reason is not None else compile_location(step.compile),
        option_cause(found, doing, others) or why,
        ("ranks.sizes", "ranks.collectives_agree")
        if own and own[0].sort in ("size", "stride", "shape")
        else ("ranks.value",),
        follows if len(same) > 1 else (),
    )


def _break(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    item = found.brk
    assert item is not None
    frame = None if is_user_file(item.span.file) else user_frame(item)
    location = (frame.file, frame.line, frame.function) if frame else (item.span.file, item.span.line, item.function)
    id_ = f"{item.gb_id}, " if item.gb_id else ""
    follows = _other_collectives(found, doing, others)
    text = f"{with_verb(doing, 'break')} the graph of {item.function} ({id_}{item.gb_type or item.reason})"
    if item.fatal:
        text = (
            f"{with_verb(doing, 'fail')} to compile {item.function} ({operator_error(item) or f'{id_}{item.gb_type}'})"
        )
    return DivergenceText(
        f"{text}, {does_not(others)}",
        location,
        value_cause(found, doing, others, location) or item.reason or None,
        ("ranks.code",),
        follows,
    )


def _other_collectives(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> tuple[str, ...]:
    """That the collectives of the graphs differ too, where they do: most often that is what stops the job."""
    numbers = [
        sum(len(graph.collectives) for graph in step.graphs) if isinstance(step, CompileStep) else 0
        for step in (found.step, found.other_step)
    ]
    if numbers[0] == numbers[1]:
        return ()
    return (
        f"the first graph of {name_ranks(doing)} then has {numbers[0]} of the collectives, "
        f"that of {name_ranks(others)} has {numbers[1]}",
    )


def _skip(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    step = found.other_step
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
        f"the compiled graph of {name_ranks(others)} has {collectives} collectives, which Inductor may bucket; "
        f"{name_ranks(doing)} issues its own one by one",
    )
    return DivergenceText(
        f"{with_verb(others, 'compile')} {step.compile.function}, {name_ranks(doing)} "
        f"{'runs' if len(doing) == 1 else 'run'} it uncompiled or not at all: {why}",
        compile_location(step.compile),
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


def _cache(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    step, other = found.step, found.other_step
    assert isinstance(step, CompileStep)
    assert isinstance(other, CompileStep)
    spent, saved = step.compile.seconds.total, other.compile.seconds.total
    text = (
        f"the FX graph cache answers {step.compile.function} with a {step.compile.cache} on {name_ranks(doing)}, "
        f"with a {other.compile.cache} on {name_ranks(others)}"
    )
    if step.compile.cache is None:
        text = (
            f"{with_verb(doing, 'compile')} {step.compile.function} without the FX graph cache, "
            f"a hit on {name_ranks(others)}"
        )
    times = f": {duration(spent)} there, {duration(saved)} here" if spent is not None and saved is not None else ""
    return DivergenceText(
        text + times,
        compile_location(step.compile),
        option_cause(found, doing, others),
        ("ranks.cache",),
    )


_DESCRIBERS: dict[str, Callable[[RankDifference, Sequence[Process], Sequence[Process]], DivergenceText]] = {
    "recompile": _recompile,
    "break": _break,
    "graph": describe_graphs,
    "collective": describe_collectives,
    "skip": _skip,
    "cache": _cache,
}


def _usual(key: str, says: str) -> Remedy[RankDifference]:
    return Remedy(f"ranks.{key}", says, usual=True)


_REMEDIES = (
    _usual(
        "sizes",
        "Give each rank the same sizes (pad to a length that all ranks agree on), or compile for all sizes at once: "
        "`torch._dynamo.mark_dynamic` on the tensor, or `dynamic=True`.",
    ),
    _usual(
        "collectives_agree",
        "`torch._dynamo.config.enable_compiler_collectives = True` makes ranks agree on which sizes are dynamic.",
    ),
    _usual("value", "Make the value the same on each rank, or keep it in a tensor."),
    _usual(
        "code",
        "Run the same code on each rank inside what is compiled: move what only some ranks do out of it, "
        "before or after the call.",
    ),
    _usual(
        "collectives", "Issue the same collectives in the same order on each rank: a rank that has nothing gives zeros."
    ),
    _usual("branch", "Make what the code branches on the same on each rank, or give it to the graph as a tensor."),
    _usual(
        "cache",
        "Give all ranks one cache folder (TORCHINDUCTOR_CACHE_DIR on a shared disk), or fill each host's first, "
        "for instance with `torch.compiler.save_cache_artifacts` and `load_cache_artifacts`.",
    ),
    _usual(
        "compile",
        "Compile it on each rank or on none: compiled code may issue other collectives, and rounds otherwise.",
    ),
)
RANKS = {remedy.key: remedy for remedy in _REMEDIES}


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A value on which both ranks have a guard, by the guard's source, and the user's line that reads it."""

    source: str
    file: str | None
    line: int | None


def value_difference(found: RankDifference, line: int | None) -> ValueDifference | None:
    """Return the guarded value that differs between two compiles: of several the one read nearest above ``line``."""
    if not (isinstance(found.step, CompileStep) and isinstance(found.other_step, CompileStep)):
        return None
    differing = list(_differences(found.step, found.other_step))
    above = [each for each in differing if line is not None and each.line is not None and each.line <= line]
    nearest = max(above, key=lambda each: each.line or 0, default=None)
    return nearest or next(iter(differing), None)


def _differences(first: CompileStep, second: CompileStep) -> Iterator[ValueDifference]:
    theirs = {source: (value, guard) for source, value, guard in _values(second)}
    for source, value, guard in _values(first):
        other = theirs.get(source)
        if other is not None and other[0] != value:
            place = guard if guard.line is not None else other[1]
            yield ValueDifference(source, place.file, place.line)


def _values_on(steps: Iterable[CompileStep], source: str) -> str:
    """The values of a source in these compiles, each once: ``1, 2, 3``."""
    found = dict.fromkeys(value for step in steps for name, value, _ in _values(step) if name == source)
    return list_some([brief(value) for value in found])


def _values(step: CompileStep) -> Iterator[tuple[str, str, GuardedValue]]:
    """Each source of a value or of a length, the value, and the guard on it."""
    for guard in step.guards:
        length, equals, number = guard.expression.partition(" == ")
        if length == f"len({guard.source})" and equals:
            yield length, number, guard
        elif (value := guarded_value(guard.expression)) is not None:
            yield guard.source, value, guard


def value_cause(
    found: RankDifference, doing: Sequence[Process], others: Sequence[Process], location: Location
) -> str | None:
    """The guarded value that differs between the ranks, where one does."""
    value = value_difference(found, location[1])
    if value is None:
        return _input_cause(found, doing, others) or option_cause(found, doing, others)
    at = f" (line {value.line})" if value.line is not None and value.line != location[1] else ""
    known = [
        f"{_values_on(_same_compiles(each, step), value.source)} on {name_ranks(each)}"
        for each, step in ((doing, found.step), (others, found.other_step))
    ]
    between = "; " if any("," in each for each in known) else ", "
    return f"`{source_text(value.source)}` is {between.join(known)}{at}"


def _same_compiles(ranks: Sequence[Process], step: object) -> Iterator[CompileStep]:
    """The compile of a step on each of these ranks."""
    for each in (
        each for item in sorted(ranks, key=lambda each: each.rank or 0) if item.trace for each in item.trace.compiles
    ):
        if isinstance(step, CompileStep) and (each.label, each.compile.compile_id) == (
            step.label,
            step.compile.compile_id,
        ):
            yield each


def _input_cause(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> str | None:
    """The input of the graph that has another dtype or number of dimensions on these ranks."""
    step, other = found.step, found.other_step
    if found.node is None or not (isinstance(step, CompileStep) and isinstance(other, CompileStep)):
        return None
    graphs = [each.graphs[found.graph].graph.nodes for each in (step, other)]
    for here, there in zip(*graphs, strict=False):
        if is_size(here) or is_size(there):
            return None  # further inputs are not the same ones
        if here.target == there.target == "placeholder" and kind_of_type(here.type) != kind_of_type(there.type):
            name, types = step.input_name(here), [short_type(node.type) for node in (here, there)]
            return f"the input `{name}` is {types[0]} on {name_ranks(doing)}, {types[1]} on {name_ranks(others)}"
    return None


def option_cause(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> str | None:
    """torch's options that these ranks compile with and the others do not, with the line that sets them."""
    step, other = found.step, found.other_step
    if not (isinstance(step, CompileStep) and isinstance(other, CompileStep)):
        return None
    ids = other.compile.compile_id, step.compile.compile_id
    with open_recording(others[0].path) as before, open_recording(doing[0].path) as after:
        changes = changed_options(before, after, ids)
    told = [
        f"`{each.name}` is {each.now} on {name_ranks(doing)}, {each.was} on {name_ranks(others)}"
        + (f" (line {each.line})" if each.line is not None else "")
        for each in changes
    ]
    return list_some(told) if told else None
