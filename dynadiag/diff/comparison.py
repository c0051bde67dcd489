"""Compare two recordings stage by stage, from what the runs were given down to kernels and caches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from dynadiag.diff.break_differences import break_differences, recompile_differences
from dynadiag.diff.cache_differences import cache_differences
from dynadiag.diff.canonical_graph import CanonicalNode, with_inputs_in_order_of
from dynadiag.diff.compile_matching import CompilePair, GraphReader, match_compiles
from dynadiag.diff.difference import COMPILED_STAGES, Comparison, Difference, NodeDifference
from dynadiag.diff.environment_differences import environment_differences, source_differences
from dynadiag.diff.exchanged_inputs import exchanged_inputs
from dynadiag.diff.graph_changes import NodeChange, graph_changes
from dynadiag.diff.guard_changes import GuardDifference, changed_state, guard_differences, is_on_traced_code
from dynadiag.diff.kernel_differences import kernel_differences
from dynadiag.explanation.formatting import brief, brief_pair, count
from dynadiag.explanation.guard_text import source_text
from dynadiag.explanation.process_state import setting_words, state_words
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile, Graph

__all__ = ["compare_recordings"]

# The graphs that are compared, in the order of the pipeline. Others lie between them and say which pass did it.
_GRAPHS = {
    "dynamo": "dynamo",
    "compiled_autograd": "dynamo",
    "joint": "aot",
    "inference": "aot",
    "forward": "aot",
    "backward": "aot",
    "post_grad": "post_grad",
}
_NAMES = {
    "dynamo": "Dynamo's graph",
    "compiled_autograd": "the graph of compiled autograd",
    "joint": "the joint graph of AOTAutograd",
    "inference": "AOTAutograd's graph",
    "forward": "the forward graph of AOTAutograd",
    "backward": "the backward graph of AOTAutograd",
    "post_grad": "the post-grad graph",
}
_COMMENT = re.compile(r"\n\s*#[^\n]*|  # [^\n]*")
_MAX_NODE = 60  # characters of a node in a sentence
_MAX_GUARD = 100
_HIT = "hit"


def compare_recordings(before: Recording, after: Recording) -> Comparison:
    """Return every difference of two recordings and the one that leads."""
    runs = GraphReader(before), GraphReader(after)
    pairs = match_compiles(*runs)
    ids = {pair.after.compile_id: pair.before.compile_id for pair in pairs if pair.before and pair.after}
    graphs = [found for pair in pairs for found in _graph_differences(pair, *runs)]
    found = [
        *break_differences(before, after, ids),
        *recompile_differences(before, after, ids),
        *_guard_stage(before, after, pairs, graphs),
        *_only_one_side(pairs, runs),
        *graphs,
        *exchanged_inputs(before, after, pairs, runs),
        *kernel_differences(before, after, ids),
        *cache_differences(before, after, pairs),
    ]
    compiled = sorted(found, key=lambda item: COMPILED_STAGES.index(item.stage))
    given = environment_differences(before, after, pairs)
    if compiled:
        given += source_differences(before, after, pairs)
    differences = (*given, *compiled)
    first = (len(given) if compiled else 0) if differences else None
    return Comparison(not differences, first, differences, tuple(_notes(before, after, pairs)))


def _notes(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> Iterator[str]:
    if pairs and not any(pair.before and pair.after for pair in pairs):
        names = [brief(side.run.target, _MAX_NODE) for side in (before, after)]
        yield f"these are two different programs ({names[0]} and {names[1]}): they share no compiled function"
    for which, side in (("first", before), ("second", after)):
        if not side.run.complete and not side.run.is_foreign:
            yield f"the recording of the {which} run was cut short: what came later is not compared"
        if side.run.exit_code and before.run.exit_code != after.run.exit_code:
            yield f"the {which} run ended with exit code {side.run.exit_code}"
        if side.compiles() and not any(True for _ in side.events("dynadiag_source", limit=1)):
            yield f"the recording of the {which} run has no source: source is not compared"


# Graphs


def _graph_differences(pair: CompilePair, before: GraphReader, after: GraphReader) -> Iterator[Difference]:
    """The graphs of a compile that differ from those of its partner."""
    if pair.before is None or pair.after is None:
        return
    ids = pair.before.compile_id, pair.after.compile_id
    if (failed := _failure(pair.before, pair.after, before, after)) is not None:
        yield failed
    reads_earlier = False  # AOTAutograd numbers the inputs in the order in which the program reads them
    for name, stage in _GRAPHS.items():
        olds, news = before.graphs(ids[0], name), after.graphs(ids[1], name)
        for old, new in zip(olds, news, strict=False):
            if _have_one_text(old, new, before, after):
                continue
            graphs = before.read(old), after.read(new)
            reordered = with_inputs_in_order_of(*graphs)
            changes = graph_changes(graphs[0], reordered)
            reads_earlier = reads_earlier or (stage == "dynamo" and reordered is not graphs[1])
            if changes and not (reads_earlier and stage != "dynamo" and not _operators_differ(changes)):
                yield _graph_difference(stage, name, ids, changes, pair.after)
        if len(olds) != len(news) and not (failed or _may_be_cached(pair, olds, news)):
            text = f"{_NAMES[name]} was compiled {_times(len(olds))}, then {_times(len(news))}"
            yield Difference(stage, ids, pair.after.file, pair.after.line, text, name)


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")


def _may_be_cached(pair: CompilePair, olds: Sequence[Graph], news: Sequence[Graph]) -> bool:
    """Whether the side with fewer graphs took its code from a cache: torch logs no graph that it did not make."""
    fewer = pair.before if len(olds) < len(news) else pair.after
    return fewer is not None and fewer.cache == _HIT


def _have_one_text(old: Graph, new: Graph, before: GraphReader, after: GraphReader) -> bool:
    texts = before.recording.payload(old.event), after.recording.payload(new.event)
    return _COMMENT.sub("", texts[0]) == _COMMENT.sub("", texts[1])


def _operators_differ(changes: Sequence[NodeChange]) -> bool:
    """Whether another set of operators is computed, whatever they read."""
    olds, news = (
        Counter(node.label for node in side if node is not None and node.computes)
        for side in ((change.before for change in changes), (change.after for change in changes))
    )
    return olds != news


def _graph_difference(
    stage: str, name: str, ids: tuple[str, str], changes: Sequence[NodeChange], item: Compile
) -> Difference:
    lead = next((change for change in changes if change.is_operator), changes[0])
    place = lead.source_line or next((change.source_line for change in changes if change.source_line), None)
    operators = sum(change.is_operator for change in changes)
    more = f" ({count(operators, 'operator')} differ)" if operators > 1 else ""
    return Difference(
        stage,
        ids,
        place.file if place else item.file,
        place.line if place else item.line,
        f"in {_NAMES[name]} {_change_text(lead)}{more}",
        name,
        tuple(_node(change) for change in changes),
    )


def _change_text(change: NodeChange) -> str:
    """A change of a node in words."""
    old, new = (_text(node) for node in (change.before, change.after))
    if change.kind == "added":
        return f"{new} is new"
    if change.kind == "removed":
        return f"{old} is gone"
    if change.kind == "moved":
        return f"{new} has another place in the order"
    if old == new and change.before is not None and change.after is not None:
        return f"{new} is {change.after.type or '?'}, was {change.before.type or '?'}"
    return f"{old} became {new}"


def _text(node: CanonicalNode | None) -> str:
    return "" if node is None else brief(node.text.removeprefix("torch.ops."), _MAX_NODE)


def _node(change: NodeChange) -> NodeDifference:
    texts = [None if node is None else _node_text(node) for node in (change.before, change.after)]
    line = change.source_line
    return NodeDifference(change.kind, texts[0], texts[1], line.file if line else None, line.line if line else None)


def _node_text(node: CanonicalNode) -> str:
    text = node.text.removeprefix("torch.ops.")
    return f"{node.name} = {text}" if node.computes else text


def _only_one_side(pairs: Sequence[CompilePair], runs: tuple[GraphReader, GraphReader]) -> Iterator[Difference]:
    """Compiles that only one run has, if they have a graph or failed."""
    for pair in pairs:
        if pair.before is not None and pair.after is not None:
            continue
        item, reader = (pair.after, runs[1]) if pair.after is not None else (pair.before, runs[0])
        if item is None or not (reader.graphs(item.compile_id, "dynamo") or item.outcome == "error"):
            continue
        if pair.after is not None:
            text = f"{item.function} is compiled in the second run only"
            yield Difference("dynamo", (None, item.compile_id), item.file, item.line, text)
        else:
            text = f"{item.function} is compiled in the first run only"
            yield Difference("dynamo", (item.compile_id, None), None, None, text)


def _failure(old: Compile, new: Compile, before: GraphReader, after: GraphReader) -> Difference | None:
    """A compile that fails in one run only, at the stage that it does not reach."""
    if (old.outcome == "error") == (new.outcome == "error"):
        return None
    failed, reader = (old, before) if old.outcome == "error" else (new, after)
    reached = {_GRAPHS[name] for name in reader.stages(failed.compile_id) if name in _GRAPHS}
    stage = next((name for name in ("dynamo", "aot", "post_grad") if name not in reached), "kernel")
    why = f"{failed.error}: {brief(failed.reason, _MAX_GUARD)}" if failed.error else brief(failed.reason, _MAX_GUARD)
    text = f"{new.function} no longer fails to compile" if failed is old else f"{new.function} fails to compile now"
    return Difference(stage, (old.compile_id, new.compile_id), new.file, new.line, f"{text}: {why}")


# Guards


def _guard_stage(
    before: Recording, after: Recording, pairs: Sequence[CompilePair], graphs: Sequence[Difference]
) -> Iterator[Difference]:
    """The guards that differ in compiles that both runs have."""
    other_graph = {item.compile_ids for item in graphs if item.stage == "dynamo"}
    for pair in pairs:
        if pair.before is None or pair.after is None:
            continue
        ids = pair.before.compile_id, pair.after.compile_id
        sides = before.guards(ids[0]), after.guards(ids[1])
        found = guard_differences(*sides)
        if ids in other_graph:
            found = tuple(each for each in found if not is_on_traced_code(each, *sides))
        if found:
            yield _guard_difference(found, pair.after, ids)


def _guard_difference(found: Sequence[GuardDifference], item: Compile, ids: tuple[str, str]) -> Difference:
    placed = min(found, key=_place_rank)
    lead = next((each for each in found if changed_state(each)), placed)  # a mode changes what tensors dispatch to
    texts = [_guard_text(each) for each in (lead, *(each for each in found if each is not lead))]
    place = (placed.after.file, placed.after.line) if placed.after and placed.after.line else (item.file, item.line)
    more = f" ({count(len(found), 'guard')} differ)" if len(found) > 1 else ""
    return Difference("guard", ids, *place, f"{texts[0]}{more}", details=tuple(texts[1:]))


def _place_rank(found: GuardDifference) -> int:
    """The order of a guard by its place: 0 for a line of the program, 1 for one of torch, 2 for no line."""
    if found.after is None or not found.after.file or not found.after.line:
        return 2
    return 0 if is_user_file(found.after.file) else 1


def _guard_text(found: GuardDifference) -> str:
    if found.before is None or found.after is None:
        guard, what = (found.after, "a new guard") if found.after else (found.before, "a guard is gone")
        return f"{what}: {brief(guard.expression, _MAX_GUARD) if guard else '?'}"
    if changed := changed_state(found):
        return "; ".join(
            f"{state_words(name)} changed"
            if was.startswith(("{", "["))
            else f"{state_words(name)} was {setting_words(name, was)}, is {setting_words(name, now)}"
            for name, (was, now) in changed.items()
        )
    old, new = brief_pair(found.before.expression, found.after.expression, _MAX_GUARD)
    on = "" if found.after.source in new else f" on {source_text(found.after.source)}"
    return f"a guard{on} changed: {old} became {new}"
