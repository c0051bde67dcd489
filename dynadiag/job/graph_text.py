"""In which node the graphs of two ranks differ, in words, and at which line of the user's."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.diff import CanonicalNode
from dynadiag.explanation.formatting import brief
from dynadiag.job.causes import value_cause, value_difference
from dynadiag.job.differences import RankDifference
from dynadiag.job.divergence import DivergenceText, Location, compile_location
from dynadiag.job.processes import Process
from dynadiag.job.ranks import name_ranks, with_verb
from dynadiag.job.trace import COLLECTIVES, CompileStep, is_size, short_type
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.opening import open_recording
from dynadiag.recording.records import Frame

__all__ = ["describe_graphs", "line_of", "node_location", "node_text"]

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
        here, there = _apart(node, other)
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


def _apart(one: CanonicalNode, two: CanonicalNode) -> tuple[str, str]:
    """Two nodes, with their arguments where they differ in nothing else."""
    short = node_text(one), node_text(two)
    return short if short[0] != short[1] else (brief(one.call, _NODE), brief(two.call, _NODE))


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
