"""Compare two recordings stage by stage, from what the runs were given down to kernels and caches.

Inputs are exchanged where a graph reads another layer, parameter or argument, and is the same otherwise. The canonical
form has no names of inputs, because a new name is no difference. It is one if both programs have both
names: a class that sets both attributes, or a function with both arguments.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dynadiag.diff.break_differences import break_differences, recompile_differences
from dynadiag.diff.canonical_graph import OUTPUT, CanonicalGraph, CanonicalNode, with_inputs_in_order_of
from dynadiag.diff.compile_matching import CompilePair, GraphReader, in_both, match_compiles
from dynadiag.diff.difference import COMPILED_STAGES, Comparison, Difference, NodeDifference
from dynadiag.diff.environment_differences import (
    are_versions,
    environment_differences,
    matching_line,
    source_differences,
)
from dynadiag.diff.graph_changes import NodeChange, graph_changes
from dynadiag.diff.guard_changes import (
    GuardDifference,
    changed_state,
    guard_change_text,
    guard_differences,
    is_on_traced_code,
    value_rank,
)
from dynadiag.diff.kernel_differences import kernel_differences
from dynadiag.diff.value_differences import value_differences, value_notes
from dynadiag.explanation.formatting import brief, brief_pair, count
from dynadiag.explanation.identity import parsed
from dynadiag.explanation.run_end import read_end
from dynadiag.explanation.source import package_files
from dynadiag.explanation.source_search import return_line
from dynadiag.recording.code_origin import is_resume_function, is_user_file, original_name
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile
from dynadiag.recording.torch_text.sources import input_names, with_program_names

_CACHES = {"fx_graph_cache_": "the FX graph cache", "aotautograd_cache_": "the AOTAutograd cache"}
_OUTCOMES = ("hit", "miss", "bypass")
_MAX_REASON = 100


def cache_differences(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> Iterator[Difference]:
    """Yield the compiles that are bypassed in one run only, or that missed though the earlier run hit.

    A miss that became a hit is what a cache is for: the first run filled it.
    """
    later = before.run.started is None or after.run.started is None or after.run.started >= before.run.started
    sides = _outcomes(before), _outcomes(after)
    for first, second in in_both(pairs):
        for prefix, name in _CACHES.items():
            old = sides[0].get((first.compile_id, prefix))
            new = sides[1].get((second.compile_id, prefix))
            if old is None or new is None or old[0] == new[0] or not (_tells(old[0], new[0]) and later):
                continue
            why = f": {brief(new[1] or old[1], _MAX_REASON)}" if new[1] or old[1] else ""
            text = _change(old[0], new[0]).format(cache=name, function=second.function) + why
            yield Difference("cache", (first.compile_id, second.compile_id), second.file, second.line, text)


def _change(old: str, new: str) -> str:
    if new == "bypass":
        return "{function} bypasses {cache} now"
    return "{function} no longer bypasses {cache}" if old == "bypass" else "{cache} lacks {function} now, was a hit"


def _tells(old: str, new: str) -> bool:
    return "bypass" in (old, new) or (old, new) == ("hit", "miss")


def _outcomes(recording: Recording) -> dict[tuple[str, str], tuple[str, str | None]]:
    """The last outcome of each cache for each compile, with the reason of a bypass."""
    found: dict[tuple[str, str], tuple[str, str | None]] = {}
    for prefix in _CACHES:
        for outcome in _OUTCOMES:
            for event in recording.events("artifact", prefix + outcome):
                reason = _reason(recording.payload(event.index)) if outcome == "bypass" else None
                found[event.compile_id, prefix] = outcome, reason
    return found


def _reason(payload: str) -> str | None:
    try:
        value = json.loads(payload).get("cache_bypass_reason")
    except (ValueError, AttributeError):
        return None
    return value if isinstance(value, str) else None


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
    ids = {second.compile_id: first.compile_id for first, second in in_both(pairs)}
    graphs = [found for both in in_both(pairs) for found in _graph_differences(both, *runs)]
    found = [
        *break_differences((before, after), runs, pairs, ids),
        *recompile_differences(before, after, ids),
        *_guard_stage(before, after, pairs, graphs),
        *_only_one_side(pairs, runs),
        *graphs,
        *exchanged_inputs(before, after, pairs, runs),
        *kernel_differences(before, after, ids),
        *cache_differences(before, after, pairs),
        *value_differences(before, after, pairs),
    ]
    compiled = sorted(found, key=lambda item: COMPILED_STAGES.index(item.stage))
    given = environment_differences(before, after, pairs)
    if compiled:
        given += source_differences(before, after, pairs)
    differences = (*given, *compiled)
    first = (len(given) if compiled else 0) if differences else None
    return Comparison(not differences, first, differences, tuple(_notes(before, after, pairs)))


def _notes(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> Iterator[str]:
    yield from value_notes(before, after)
    if before.compiles() and after.compiles() and not any(in_both(pairs)):
        names = [brief(side.run.target, _MAX_NODE) for side in (before, after)]
        other = "" if are_versions(before, after) else f"these are two different programs ({names[0]} and {names[1]}): "
        yield f"{other}they share no compiled function"
    for which, side in (("first", before), ("second", after)):
        if pairs and not side.compiles():
            yield f"the {which} run compiled nothing"
        if not side.run.complete and not side.run.is_foreign:
            yield f"the recording of the {which} run was cut short: what came later is not compared"
        if side.run.exit_code and before.run.exit_code != after.run.exit_code:
            yield f"the {which} run ended with exit code {side.run.exit_code}{_exception(side)}"
        if side.compiles() and not any(True for _ in side.events("dynadiag_source", limit=1)):
            yield f"the recording of the {which} run has no source: source is not compared"


def _exception(recording: Recording) -> str:
    """The exception that ended a run, where it was recorded."""
    end = read_end(recording)
    if end is None or not end.error:
        return ""
    first, _, rest = end.message.partition("\n")
    message = f"{first} {rest.lstrip().splitlines()[0]}" if first.endswith(":") and rest.strip() else first
    said = f": {brief(message, _MAX_GUARD)}" if message else ""
    return f", with {end.error.removeprefix('builtins.')}{said}"


# Graphs


def _graph_differences(both: tuple[Compile, Compile], before: GraphReader, after: GraphReader) -> Iterator[Difference]:
    """The graphs of a compile that differ from those of its partner."""
    first, second = both
    ids = first.compile_id, second.compile_id
    if (failed := _failure(first, second, before, after)) is not None:
        yield failed
    traced_otherwise = False
    reads_earlier = False  # AOTAutograd numbers the inputs in the order in which the program reads them
    for name, stage in _GRAPHS.items():
        olds, news = before.graphs(ids[0], name), after.graphs(ids[1], name)
        for old, new in zip(olds, news, strict=False):
            texts = before.recording.payload(old.event), after.recording.payload(new.event)
            if _COMMENT.sub("", texts[0]) == _COMMENT.sub("", texts[1]):
                continue
            graphs = before.read(old), after.read(new)
            reordered = with_inputs_in_order_of(*graphs)
            changes = graph_changes(graphs[0], reordered)
            reads_earlier = reads_earlier or (stage == "dynamo" and reordered is not graphs[1])
            if changes and not (reads_earlier and stage != "dynamo" and not _operators_differ(changes)):
                # an operator that changed says most, and what is computed says more than the order
                lead = min(changes, key=lambda change: (not change.is_operator, change.kind == "moved"))
                told = _with_program_names(lead, ids, before, after) if stage == "dynamo" else lead
                place = told.source_line or next((change.source_line for change in changes if change.source_line), None)
                operators = sum(change.is_operator for change in changes)
                more = f" ({count(operators, 'operator')} differ)" if operators > 1 else ""
                found = Difference(
                    stage,
                    ids,
                    place.file if place else second.file,
                    place.line if place else second.line,
                    f"in {_NAMES[name]} {_change_text(told)}{more}",
                    name,
                    tuple(_node(change) for change in changes),
                )
                if name == "forward" and not traced_otherwise and (kept := _kept(changes, *graphs)):
                    found = replace(found, text=kept)
                traced_otherwise = traced_otherwise or stage == "dynamo"
                line = _line_of_removed(lead, first, second, before, after)
                line = line or _line_of_returned(changes, second, after)
                yield found if line is None else replace(found, file=second.file, line=line)
        # The side with fewer graphs may have its code from a cache: torch logs no graph that it did not make.
        if len(olds) != len(news) and not failed and both[len(olds) > len(news)].cache != _HIT:
            text = f"{_NAMES[name]} was compiled {_times(len(olds))}, then {_times(len(news))}"
            yield Difference(stage, ids, second.file, second.line, text, name)


def _kept(changes: Sequence[NodeChange], before: CanonicalGraph, after: CanonicalGraph) -> str:
    """How many results a forward graph returns: those of its outputs, and those that it keeps for the backward."""
    outputs = [(each.before, each.after) for each in changes if each.after and each.after.target == OUTPUT]
    old, new = outputs[0] if len(outputs) == 1 else (None, None)
    if old is None or new is None:
        return ""
    was, now = (sum(graph.nodes[at].computes for at in node.inputs) for node, graph in ((old, before), (new, after)))
    if was == now:
        return ""
    where = "computes the rest again" if now < was else "computes fewer again"
    return f"the forward graph returns {count(now, 'result')} of operators, had {was}; the backward {where}"


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")


def _operators_differ(changes: Sequence[NodeChange]) -> bool:
    """Whether another set of operators is computed, whatever they read."""
    olds, news = (
        Counter(node.label for node in side if node is not None and node.computes)
        for side in ((change.before for change in changes), (change.after for change in changes))
    )
    return olds != news


def _with_program_names(
    change: NodeChange, ids: tuple[str, str], before: GraphReader, after: GraphReader
) -> NodeChange:
    """A change of Dynamo's graph, its nodes with the inputs as the program writes them."""

    guards = (*before.recording.guards(ids[0]), *after.recording.guards(ids[1]))  # one that failed has none
    sources = {guard.source for guard in guards}

    def named(node: CanonicalNode | None) -> CanonicalNode | None:
        return node and replace(node, text=with_program_names(node.text, sources))

    return replace(change, before=named(change.before), after=named(change.after))


def _line_of_removed(
    lead: NodeChange, old: Compile, new: Compile, before: GraphReader, after: GraphReader
) -> int | None:
    """The line of the second program that stands where an operator that is gone was; None where there is none."""
    place = lead.before.source_line if lead.kind == "removed" and lead.before is not None else None
    if place is None or place.file != old.file or old.file is None or new.file is None:
        return None
    was, now = before.recording.source(old.file), after.recording.source(new.file)
    return matching_line(was, now, place.line) if was is not None and now is not None else None


def _line_of_returned(changes: Sequence[NodeChange], new: Compile, after: GraphReader) -> int | None:
    """The line of the ``return``, if only the returned values differ. Dynamo gives them no line."""
    if any(change.source_line for change in changes) or new.file is None or new.line is None:
        return None
    return return_line(after.recording.source(new.file) or "", new.line)


def _change_text(change: NodeChange) -> str:
    """A change of a node in words."""
    before, after = change.before, change.after
    if before is None or after is None:
        return f"{_text(after)} is new" if before is None else f"{_text(before)} is gone"
    if change.kind == "moved":
        return f"{_text(after)} has another place in the order"
    if before.call == after.call and before.type != after.type:
        return f"{_text(after)} is {after.type or '?'}, was {before.type or '?'}"
    old, new = brief_pair(_whole_text(before), _whole_text(after), _MAX_NODE)
    return f"{old} became {new}" if old != new else f"{new} reads other values"


def _whole_text(node: CanonicalNode) -> str:
    return node.text.removeprefix("torch.ops.")


def _text(node: CanonicalNode | None) -> str:
    return "" if node is None else brief(_whole_text(node), _MAX_NODE)


def _node(change: NodeChange) -> NodeDifference:
    texts = [None if node is None else _node_text(node) for node in (change.before, change.after)]
    line = change.source_line
    return NodeDifference(change.kind, texts[0], texts[1], line.file if line else None, line.line if line else None)


def _node_text(node: CanonicalNode) -> str:
    return f"{node.name} = {_whole_text(node)}" if node.computes else _whole_text(node)


def _only_one_side(pairs: Sequence[CompilePair], runs: tuple[GraphReader, GraphReader]) -> Iterator[Difference]:
    """Compiles that only one run has, if they have a graph or failed."""
    for pair in pairs:
        if pair.before is not None and pair.after is not None:
            continue
        item, reader = (pair.after, runs[1]) if pair.after is not None else (pair.before, runs[0])
        if item is None or not (reader.graphs(item.compile_id, "dynamo") or item.outcome == "error"):
            continue
        both = {(_place(first), _place(second)) for first, second in in_both(pairs)}
        again = any(_place(item) == side[0 if pair.after is None else 1] for side in both)
        how = f"{'once more' if again else 'only'} in the {'first' if pair.after is None else 'second'} run"
        text = f"{_compiled_part(item, reader)} is compiled {how}"
        if pair.after is not None:
            yield Difference("dynamo", (None, item.compile_id), item.file, item.line, text)
        else:
            yield Difference("dynamo", (item.compile_id, None), None, None, text)


def _place(item: Compile) -> tuple[str | None, int | None, str]:
    return item.file, item.line, item.function


def _compiled_part(item: Compile, reader: GraphReader) -> str:
    """The function that was compiled, or the rest of it after a break: torch compiles that as a function of its own."""
    name = original_name(item.function)
    whole = [
        (each.file, original_name(each.function)) for each in reader.compiles if (each.line or 0) < (item.line or 0)
    ]
    rest = is_resume_function(item.function) or (item.file, name) in whole
    return f"the rest of {name} after a break" if rest else name


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
    for first, second in in_both(pairs):
        if "error" in (first.outcome, second.outcome):
            continue  # a compile that failed has no guards
        ids = first.compile_id, second.compile_id
        sides = before.guards(ids[0]), after.guards(ids[1])
        found = guard_differences(*sides) if all(sides) else ()  # without a graph there are none
        if ids in other_graph:
            found = tuple(each for each in found if not is_on_traced_code(each, *sides))
        if found:
            yield _guard_difference(found, second, ids)


def _guard_difference(found: Sequence[GuardDifference], item: Compile, ids: tuple[str, str]) -> Difference:
    placed = min(found, key=lambda each: (_place_rank(each), value_rank(each)))
    lead = next((each for each in found if changed_state(each)), placed)  # a mode changes what tensors dispatch to
    texts = [guard_change_text(each) for each in (lead, *(each for each in found if each is not lead))]
    place = (placed.after.file, placed.after.line) if placed.after and placed.after.line else (item.file, item.line)
    more = f" ({count(len(found), 'guard')} differ)" if len(found) > 1 else ""
    return Difference("guard", ids, *place, f"{texts[0]}{more}", details=tuple(texts[1:]))


def _place_rank(found: GuardDifference) -> int:
    """The order of a guard by its place: 0 for a line of the program, 1 for one of torch, 2 for no line."""
    if found.after is None or not found.after.file or not found.after.line:
        return 2
    return 0 if is_user_file(found.after.file) else 1


_Scopes = Sequence[frozenset[str]]  # the attributes of each class, and the arguments of each function


def exchanged_inputs(
    before: Recording, after: Recording, pairs: Sequence[CompilePair], graphs: tuple[GraphReader, GraphReader]
) -> Iterator[Difference]:
    """A difference for each input that the second run's graph reads in the place of another one.

    Only graphs that are otherwise the same are compared.
    """
    scopes: tuple[_Scopes, _Scopes] | None = None
    for first, second in in_both(pairs):
        ids = first.compile_id, second.compile_id
        stages = (side.graphs(id_, "dynamo") for side, id_ in zip(graphs, ids, strict=True))
        for old, new in zip(*stages, strict=False):
            if before.payload(old.event) == after.payload(new.event):
                continue
            graph = graphs[0].read(old)
            other = with_inputs_in_order_of(graph, graphs[1].read(new))
            names = _input_names(graph, before, ids[0]), _input_names(other, after, ids[1])
            if graph.digest == other.digest and names[0] != names[1]:
                scopes = scopes or (_scopes(before), _scopes(after))
                yield from _exchanges(other, names, scopes, ids)


def _input_names(graph: CanonicalGraph, recording: Recording, compile_id: str) -> list[str]:
    sources = (guard.source for guard in recording.guards(compile_id))
    return input_names((node.name for node in graph.nodes if node.target == "placeholder"), sources)


def _exchanges(
    graph: CanonicalGraph,
    names: tuple[Sequence[str], Sequence[str]],
    scopes: tuple[_Scopes, _Scopes],
    ids: tuple[str, str],
) -> Iterator[Difference]:
    inputs = (place for place, node in enumerate(graph.nodes) if node.target == "placeholder")
    for place, was, now in zip(inputs, *names, strict=False):
        changed = {pair for pair in zip(was.split("."), now.split("."), strict=False) if pair[0] != pair[1]}
        if was.count(".") == now.count(".") and changed and all(_both_have(pair, scopes) for pair in changed):
            readers = (node.source_line for node in graph.nodes if place in node.inputs)
            line = next((each for each in readers if each is not None), None)
            text = f"Dynamo's graph reads `{now}` where it read `{was}`"
            yield Difference("dynamo", ids, line.file if line else None, line.line if line else None, text, "dynamo")


def _both_have(names: tuple[str, str], scopes: tuple[_Scopes, _Scopes]) -> bool:
    return all(any(scope.issuperset(names) for scope in side) for side in scopes)


def _scopes(recording: Recording) -> _Scopes:
    inside = package_files(recording).inside
    own = (text for file, text in recording.sources().items() if inside(file) is None)
    trees = map(parsed, own)
    return [_scope(node) for tree in trees if tree is not None for node in ast.walk(tree)]


def _scope(node: ast.AST) -> frozenset[str]:
    if isinstance(node, ast.ClassDef):
        return frozenset(_attributes(ast.walk(node)))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return frozenset(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
    return frozenset()


def _attributes(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The attributes that are set."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
