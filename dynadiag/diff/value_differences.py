"""The first node of each matched graph whose inputs agree in both runs, and whose value does not.

Values agree in bits, or to rounding. Rounding grows from node to node, and a node amplifies what it reads, so a value
is beyond rounding where it is much further apart than the values that it was computed of. Where the uncompiled values
agree, those that compiled code stored are compared. Only summaries are compared: up to 64 elements, the extremes, and
how many elements are not finite.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile

from dynadiag.diff.compile_matching import CompilePair, in_both
from dynadiag.diff.difference import Difference, NodeDifference
from dynadiag.explanation.formatting import count
from dynadiag.explanation.values import EPSILON, ValueTable, element_count, operator_name, range_text, read_values
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import NodeValue, ValuesCall, ValueSummary
from dynadiag.recording.torch_text.sources import attribute_name

_NARROW = 1e-4  # the epsilon of 16-bit types is larger
_UNITS, _UNITS_NARROW = 16.0, 4.0  # units in the last place that one node may be apart
_JUMP = 16.0  # times the distance of what a node reads
_MAX_NODES = 100  # that are listed of a graph
# Python's operators, by the tensor's methods that torch traces in their place where there is a default device.
_METHODS = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}


def value_differences(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> Iterator[Difference]:
    """Yield a difference for each graph whose values differ, and before it the state of the random numbers."""
    tables = read_values(before), read_values(after)
    if tables[0] is None or tables[1] is None:
        return
    for first, second in in_both(pairs):
        rounding = dict[int, float]()  # by call: how far the values of its forward graph are apart
        for calls in _matched_calls(tables[0], tables[1], first.compile_id, second.compile_id):
            if (found := _first_difference(tables[0], tables[1], calls, rounding)) is not None:
                if calls[0].seed != calls[1].seed:
                    text = f"the random numbers of {second.function} start from other states ({_name(calls[1])})"
                    yield Difference("values", _ids(calls), second.file, second.line, text, _stage(calls))
                yield found


def value_notes(before: Recording, after: Recording) -> Iterator[str]:
    """Yield why values are not compared, if one run alone has them."""
    has_values = bool(before.records(ValuesCall)), bool(after.records(ValuesCall))
    if has_values[0] != has_values[1]:
        which = "second" if has_values[0] else "first"
        yield f"the {which} run was recorded without --values: values are not compared"


def _matched_calls(
    before: ValueTable, after: ValueTable, first: str, second: str
) -> Iterator[tuple[ValuesCall, ValuesCall]]:
    """The calls of the same graph with the same number. The graph of a call without gradients is a forward graph."""
    olds = {_key(call): call for call in before.calls if call.compile_id == first}
    for call in after.calls:
        if call.compile_id == second and _key(call) in olds:
            yield olds[_key(call)], call


def _key(call: ValuesCall) -> tuple[bool, int]:
    return call.graph == "backward", call.call


def _ids(calls: tuple[ValuesCall, ValuesCall]) -> tuple[str, str]:
    return calls[0].compile_id, calls[1].compile_id


def _stage(calls: tuple[ValuesCall, ValuesCall]) -> str:
    """The stage of the graph whose nodes were run: a call that is not a backward one runs Dynamo's."""
    return "backward" if calls[1].graph == "backward" else "dynamo"


def _name(call: ValuesCall) -> str:
    return f"{call.graph}, call {call.call}"


def _first_difference(
    before: ValueTable, after: ValueTable, calls: tuple[ValuesCall, ValuesCall], rounding: dict[int, float]
) -> Difference | None:
    """The first node that is beyond rounding, or else the first that compiled code stores so, or the first with other
    bits. Compiled code may store other bits in each run of one program: those are no difference. A backward graph
    begins with what its forward graph has come to.
    """
    pairs = _matched_nodes(before.nodes_of(calls[0]), after.nodes_of(calls[1]))
    apart = [(old, new) for old, new in pairs if old.summary.hash != new.summary.hash]
    distances = _distances(pairs, after.nodes_of(calls[1]))
    before_it = rounding.get(calls[1].call, 0.0)
    beyond = [pair for pair in apart if _is_beyond(*pair, distances, before_it)]
    if not beyond:
        rounding[calls[1].call] = max(distances.values(), default=0.0)
    if not beyond and (stored := _first_stored(before, after, pairs, distances)) is not None:
        old, new = stored
        by = f" by kernel {kernel}" if (kernel := after.stored[new.index].kernel) else ""
        ranges = [range_text(node, table.stored[node.index].summary) for table, node in ((after, new), (before, old))]
        text = f"{_node_name(new)} comes out different as compiled{by}: {ranges[0]}, was {ranges[1]}"
        return Difference(
            "values", _ids(calls), new.span.file, new.span.line, f"{text}, in {_name(calls[1])}", _stage(calls)
        )
    if not apart:
        return None
    known = {new.node for _, new in pairs}
    differing = {new.node for _, new in apart}
    own = [pair for pair in apart if not differing & (set(pair[1].inputs) & known)]
    old, new = (beyond or own or apart)[0]
    how = "" if beyond else ", within rounding"
    more = f" ({count(len(apart), 'node')} of {len(pairs):,} differ)" if len(apart) > 1 else ""
    what = "comes in different" if new.op == "placeholder" else f"differs, and {_read_text(new, known)}"
    ranges_text = f"{range_text(new)}, was {range_text(old)}"
    text = f"{_node_name(new)} {what}{how}: {ranges_text}, in {_name(calls[1])}{more}"
    nodes = tuple(
        NodeDifference("changed", _node_text(one), _node_text(other), other.span.file, other.span.line)
        for one, other in apart[:_MAX_NODES]
    )
    return Difference("values", _ids(calls), new.span.file, new.span.line, text, _stage(calls), nodes)


def _distances(pairs: Sequence[tuple[NodeValue, NodeValue]], nodes: Sequence[NodeValue]) -> dict[str, float]:
    """How far each node's value is apart; of a node without a match the furthest of what it reads."""
    known = {new.node: _distance(old.summary, new.summary) for old, new in pairs}
    for node in nodes:
        known.setdefault(node.node, max((known.get(name, 0.0) for name in node.inputs), default=0.0))
    return known


def _first_stored(
    before: ValueTable,
    after: ValueTable,
    pairs: Sequence[tuple[NodeValue, NodeValue]],
    distances: Mapping[str, float],
) -> tuple[NodeValue, NodeValue] | None:
    """The first node whose value, as compiled code stored it in both runs, is apart beyond rounding."""
    apart = dict(distances)
    for old, new in pairs:
        stored = before.stored.get(old.index), after.stored.get(new.index)
        if stored[0] is None or stored[1] is None:
            apart[new.node] = max(apart[new.node], *(apart.get(name, 0.0) for name in new.inputs), 0.0)
            continue
        apart[new.node] = _distance(stored[0].summary, stored[1].summary)
        if _is_beyond(old, new, apart):
            return old, new
    return None


def _read_text(node: NodeValue, known: Container[str]) -> str:
    """What is known of what the first node that differs reads."""
    unknown = [attribute_name(name) for name in node.inputs if name not in known]
    return f"{', '.join(unknown)}, which it reads, was not compared" if unknown else "what it reads does not"


def _node_text(node: NodeValue) -> str:
    return f"{attribute_name(node.node)} = {operator_name(node.op)}: {range_text(node)}"


def _node_name(node: NodeValue) -> str:
    return f"{attribute_name(node.node)} ({operator_name(node.op)})"


def _matched_nodes(olds: Sequence[NodeValue], news: Sequence[NodeValue]) -> list[tuple[NodeValue, NodeValue]]:
    """The nodes of both in the order of execution, matched by what they compute: names may differ.

    Operators that follow each other in both are matched with other shapes too: an input may have another size.
    """
    before, after = ([(_operation(node), node.summary.shape) for node in side] for side in (olds, news))
    if [name for name, _ in before] == [name for name, _ in after]:
        return list(zip(olds, news, strict=True))
    pairs = list[tuple[NodeValue, NodeValue]]()
    for _, first, last, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        beside = zip(olds[first:last], news[start:end], strict=False)
        pairs += takewhile(lambda pair: _operation(pair[0]) == _operation(pair[1]), beside)
    return pairs


def _operation(node: NodeValue) -> str:
    name = operator_name(node.op).strip("_")
    return _METHODS.get(name, name)


def _is_beyond(old: NodeValue, new: NodeValue, distances: Mapping[str, float], before_it: float = 0.0) -> bool:
    """Whether two values are further apart than rounding and what they are computed of explain."""
    eps = max(EPSILON.get(node.summary.dtype, 0.0) for node in (old, new))
    least = (_UNITS_NARROW if eps > _NARROW else _UNITS) * eps
    read = max((distances.get(name, 0.0) for name in new.inputs), default=before_it)
    return distances[new.node] > max(least, _JUMP * read)


def _distance(old: ValueSummary, new: ValueSummary) -> float:
    """The largest known difference of two values, relative to a typical element; infinite for other forms."""
    if (old.shape, old.nan, old.inf) != (new.shape, new.nan, new.inf):
        return math.inf
    if old.hash == new.hash:
        return 0.0
    scale = _typical(new) or _typical(old)
    pairs = [*zip(old.samples, new.samples, strict=False)]
    apart = [distance(sample_number(one), sample_number(other)) for one, other in pairs]
    extremes = [(old.min, new.min), (old.max, new.max)]
    apart += [distance(one, other) for one, other in extremes if one is not None and other is not None]
    largest = max(apart, default=0.0)
    return largest / scale if scale else largest


def _typical(summary: ValueSummary) -> float:
    """The root of the mean square of the elements, or their largest where it is not known."""
    total = element_count(summary.shape)
    if summary.norm and total:
        return summary.norm / math.sqrt(total)
    return max(abs(summary.min or 0.0), abs(summary.max or 0.0))


def sample_number(text: str) -> float:
    """A recorded element as a number; NaN where a damaged recording has another text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def distance(one: float, other: float) -> float:
    """How far two elements are apart: two NaN not at all, a NaN and a number infinitely."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    apart = abs(one - other)
    return math.inf if math.isnan(apart) else apart
