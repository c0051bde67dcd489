"""The values of the nodes of compiled graphs (``--values``): which is the first that is not finite, or wrong."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from dynadiag.explanation.findings import Fact, Finding
from dynadiag.explanation.identity import enclosing_function, identity
from dynadiag.explanation.remedy import Remedy, advise, slots_if
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.source import ExplainedRecording
from dynadiag.recording.records import NodeFacts, NodeValue, StoredNodeValue, ValuesCall, ValueSummary
from dynadiag.recording.torch_text.sources import attribute_name

# The machine epsilon of each floating type (IEEE 754, and bfloat16's 8 bits). A complex type has that of its parts.
EPSILON = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}
_LOW_PRECISION = ("float16", "bfloat16", "float32")  # the types whose loss of precision is looked at
_MIN_UNITS = 64.0  # units in the last place that a node is off before it is told
_MIN_JUMP = 32.0  # times what the other nodes of its type are off
# Of 16 bits: 64 units of bfloat16 are half of the largest element, and most operators round an exact result.
_MIN_UNITS_NARROW, _MIN_JUMP_NARROW = 8.0, 16.0
_NARROW = 1e-4  # the epsilon of 16-bit types is larger
_SENSITIVE = 8.0  # times as far as rounding of what it reads moves a node, which explains its error
_MAX_NOT_FINITE = 4  # graphs whose first value that is not finite is told
_MAX_ELEMENTS = 4  # that are shown of a wrong value
_MIN_NODES = 4  # nodes of a type, without which there are no neighbours to compare with
_MAX_EXACT = 2.0**53  # an integer below it is recorded in all its digits
_MAX_DIGITS = 19  # of a number of 64 bits
_MAX_COUNT = 2**63 - 1  # elements of a tensor
_TANGENTS = "tangents_"  # AOTAutograd's names of the gradients that a backward graph is given
_HIGHER_ORDER = 4  # names in torch.ops.higher_order.cond; an operator has its overload as a fifth


@dataclass(frozen=True)
class ValueTable:
    """The recorded calls, the nodes of all of them in the order of execution, and what compiled code stored."""

    calls: tuple[ValuesCall, ...]
    nodes: tuple[NodeValue, ...]
    stored: Mapping[int, StoredNodeValue]
    facts: Mapping[int, NodeFacts] = field(default_factory=dict)

    def call_of(self, node: NodeValue) -> ValuesCall:
        """Return the call that a node's value is of."""
        return self.calls[node.values_call]

    def nodes_of(self, call: ValuesCall) -> tuple[NodeValue, ...]:
        """Return the nodes of one call."""
        return self._by_call.get(call.index, ())

    @property
    def first_nan(self) -> NodeValue | None:
        """The node that makes the first NaN that is returned or written to an input.

        Where none makes it, it is the input that has it. Of a call that did not come to its end every NaN counts.
        """
        for call in self.calls:
            bad = [node for node in self.nodes_of(call) if node.summary.nan and self.comes_out(node)]
            made = next((node for node in bad if node.cause), None)
            if made is not None or bad:
                return made or self._made_forward(bad[0]) or bad[0]
        return None

    def comes_out(self, node: NodeValue) -> bool:
        """Whether what is not finite in a node comes to what its graph returns, as far as that is known."""
        facts = self.facts.get(node.index)
        return facts is None or facts.reaches is not False

    def is_followed(self, call: ValuesCall) -> bool:
        """Whether it is known what comes to what a call returns: its uncompiled run came to its end."""
        known = (self.facts.get(node.index) for node in self.nodes_of(call))
        return any(each is not None and each.reaches is not None for each in known)

    def _made_forward(self, node: NodeValue) -> NodeValue | None:
        """What made a NaN that the forward graph saved for its backward, and does not return itself.

        The graphs of Dynamo and AOTAutograd have different names: a value is found by its bits, by its name, or else by
        its shape and number of NaN.
        """
        call = self.call_of(node)
        if call.graph != "backward" or node.op != "placeholder" or node.node.startswith(_TANGENTS):
            return None
        forward = [each for each in self.calls if (each.compile_id, each.call) == (call.compile_id, call.call)]
        own = [each for each in self.nodes_of(forward[0]) if each.summary.nan]
        for same in (_have_same_bits, _have_same_name, _have_same_form):
            kept = next((each for each in own if same(each, node)), None)
            if kept is not None:
                origins = (*self.origins_of(kept, not_finite=True), kept)
                return next((each for each in origins if each.summary.nan and each.cause), None)
        return None

    @property
    def first_inf(self) -> NodeValue | None:
        """The first node with an infinity."""
        return next((node for node in self.nodes if node.summary.inf), None)

    @property
    def first_overflow(self) -> NodeValue | None:
        """The first node whose infinity no float64 has: one that the program puts there, as a mask does, is none."""
        return next((node for node in self.nodes if overflows(node)), None)

    @property
    def first_wrong(self) -> NodeValue | None:
        """The first node whose value, as compiled code stored or returned it, rounding does not explain."""
        return next((node for node in self.nodes if (one := self.stored.get(node.index)) and one.wrong), None)

    @property
    def first_imprecise(self) -> NodeValue | None:
        """The first node whose own error is much larger than that of the other nodes of its type."""
        for node in self.nodes:
            units, usual = _units(node), self.typical_units.get(node.summary.dtype)
            if units is None or usual is None:
                continue
            is_narrow = EPSILON[node.summary.dtype] > _NARROW
            limit = max(
                *((_MIN_UNITS_NARROW, _MIN_JUMP_NARROW * usual) if is_narrow else (_MIN_UNITS, _MIN_JUMP * usual))
            )
            if units > limit and not self._is_cancellation(node, units, limit) and not self._is_sensitive(node, units):
                return node
        return None

    def _is_sensitive(self, node: NodeValue, units: float) -> bool:
        """Whether the node moves about as far if what it reads moves by its last place: no precision is lost then.

        So does what has steps, such as a quantization, what cancels, and what draws random numbers of its own.
        """
        facts = self.facts.get(node.index)
        return facts is not None and units * EPSILON[node.summary.dtype] <= _SENSITIVE * (facts.moved or 0.0)

    def _is_cancellation(self, node: NodeValue, units: float, limit: float) -> bool:
        """Whether the error is small against what the node reads: then a sum has cancelled, as it may."""
        largest = max((_largest(each) for each in self.inputs_of(node)), default=0.0)
        return units * _largest(node) <= limit * largest

    @functools.cached_property
    def typical_units(self) -> dict[str, float]:
        """The median of the errors of the nodes of each type, in units in the last place."""
        units: dict[str, list[float]] = {}
        for node in self.nodes:
            if (own := _units(node)) is not None:
                units.setdefault(node.summary.dtype, []).append(own)
        return {dtype: median(each) for dtype, each in units.items() if len(each) >= _MIN_NODES}

    def inputs_of(self, node: NodeValue) -> tuple[NodeValue, ...]:
        """Return the values that a node reads, where they were recorded."""
        own = self._by_name.get(node.values_call, {})
        return tuple(own[name] for name in node.inputs if name in own)

    def origins_of(self, node: NodeValue, *, not_finite: bool = False) -> tuple[NodeValue, ...]:
        """Return the nodes of the same call that a node is computed of, in the order of execution.

        With ``not_finite`` only those from which it is reached through numbers that are not finite.
        """
        origins, waiting = dict[int, NodeValue](), [node]
        while waiting:
            for read in self.inputs_of(waiting.pop()):
                if read.index not in origins and not (not_finite and _is_finite(read)):
                    origins[read.index] = read
                    waiting.append(read)
        return tuple(origins[index] for index in sorted(origins))

    def history(self, node: NodeValue) -> tuple[NodeValue, ...]:
        """Return the values of a node in every recorded call of its graph."""
        return tuple(self._by_graph[*self.graph_of(node), node.node])

    def graph_of(self, node: NodeValue) -> tuple[str, bool]:
        """Return the compile of a node's graph, and whether it is the backward graph."""
        call = self.call_of(node)
        return call.compile_id, call.graph == "backward"

    @functools.cached_property
    def _by_graph(self) -> dict[tuple[str, bool, str], list[NodeValue]]:
        found: dict[tuple[str, bool, str], list[NodeValue]] = {}
        for node in self.nodes:
            found.setdefault((*self.graph_of(node), node.node), []).append(node)
        return found

    def named(self, compile_id: str, name: str, *, backward: bool) -> tuple[NodeValue, ...]:
        """Return the values of a node of a graph in its recorded calls."""
        return tuple(self._by_graph.get((compile_id, backward, name), ()))

    @functools.cached_property
    def _by_call(self) -> dict[int, tuple[NodeValue, ...]]:
        found: dict[int, list[NodeValue]] = {}
        for node in self.nodes:
            found.setdefault(node.values_call, []).append(node)
        return {call: tuple(nodes) for call, nodes in found.items()}

    @functools.cached_property
    def _by_name(self) -> dict[int, dict[str, NodeValue]]:
        return {call: {node.node: node for node in nodes} for call, nodes in self._by_call.items()}


def _have_same_bits(one: NodeValue, other: NodeValue) -> bool:
    return (one.summary.shape, one.summary.hash) == (other.summary.shape, other.summary.hash)


def _have_same_name(one: NodeValue, other: NodeValue) -> bool:
    return one.node == other.node


def _have_same_form(one: NodeValue, other: NodeValue) -> bool:
    return (one.summary.shape, one.summary.nan) == (other.summary.shape, other.summary.nan)


def _largest(node: NodeValue) -> float:
    """The absolute value of the largest finite element."""
    return max(abs(node.summary.min or 0.0), abs(node.summary.max or 0.0))


def _units(node: NodeValue) -> float | None:
    """A node's own error in units in the last place of its largest element."""
    dtype = node.summary.dtype
    return None if dtype not in _LOW_PRECISION or node.off_float64 is None else node.off_float64 / EPSILON[dtype]


def read_values(recording: ExplainedRecording) -> ValueTable | None:
    """Return the values of a recording, None if it was recorded without ``--values``."""
    calls = recording.records(ValuesCall)
    if not calls:
        return None
    stored = {each.index: each for each in recording.records(StoredNodeValue)}
    # A stranger's recording may have nodes of no call.
    nodes = tuple(node for node in recording.records(NodeValue) if 0 <= node.values_call < len(calls))
    return ValueTable(calls, nodes, stored, {each.index: each for each in recording.records(NodeFacts)})


def operator_name(op: str) -> str:
    """Return an operator's name without its module: ``relu`` of ``torch.nn.functional.relu``.

    >>> operator_name("torch.ops.aten.mul.Tensor")
    'mul'
    """
    parts = op.split(".")
    return parts[-2] if op.startswith("torch.ops.") and len(parts) > _HIGHER_ORDER else parts[-1]


def sizes(texts: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of a recorded shape or stride; a symbol, and what only a stranger writes, are left out.

    >>> sizes(("2", "s0", "-3", "²"))
    (2, -3)
    """
    return tuple(int(text) for text in texts if _is_number(text.removeprefix("-")))


def element_count(shape: Sequence[str]) -> int:
    """Return how many elements a recorded shape has: none of a shape that no tensor has, which only a stranger writes.

    >>> element_count(("2", "3")), element_count(("-3",)), element_count(("9" * 19,) * 300)
    (6, 0, 0)
    """
    count = math.prod(sizes(shape))
    return count if 0 <= count <= _MAX_COUNT else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def range_text(node: NodeValue, stored: ValueSummary | None = None) -> str:
    """Return a node's value in short, or what was stored for it: ``float32 (4, 8), -1.2 .. 3.4, 3 NaN``."""
    summary = stored or node.summary
    parts = [f"{summary.dtype} ({', '.join(summary.shape)}{',' if len(summary.shape) == 1 else ''})"]
    parts += filter(None, [bounds_text(summary, 6)])
    parts += [f"{number:,} {what}" for number, what in ((summary.nan, "NaN"), (summary.inf, "infinite")) if number]
    return ", ".join(parts)


def bounds_text(summary: ValueSummary, digits: int) -> str:
    """Return the extremes in so many significant digits: ``-1.2 .. 3.4``; empty where no element is finite.

    Of integers all digits are shown: an identifier or an index says nothing without them.
    """
    if summary.min is None or summary.max is None:
        return ""
    is_integer = summary.dtype.startswith(("int", "uint")) and max(-summary.min, summary.max) < _MAX_EXACT
    form = ".0f" if is_integer else f".{digits}g"
    low, high = f"{summary.min:{form}}", f"{summary.max:{form}}"
    return low if summary.min == summary.max else f"{low} .. {high}"


def value_findings(table: ValueTable | None, sources: Mapping[str, str]) -> tuple[Finding, ...]:
    """What the values tell: the first wrong one, the first of each graph that is not finite, and the first that loses
    precision.
    """
    if table is None:
        return ()
    made = [_undeclared_write(table), _wrong_value(table), *_not_finite(table), _low_precision(table)]
    return tuple(_placed(item, sources) for item in made if item is not None)


@dataclass(frozen=True, slots=True)
class _Told:
    """A finding on a node, without its place."""

    rule: Rule
    severity: str
    node: NodeValue
    compile_id: str
    title: str
    cause: str | None
    evidence: tuple[Fact, ...]


def _placed(told: _Told, sources: Mapping[str, str]) -> Finding:
    span = told.node.span
    function = enclosing_function(sources.get(span.file or ""), span.line)
    name = getattr(function, "name", None) or told.node.node
    cause = operator_name(told.node.op)
    return Finding(
        rule=told.rule,
        id=None,
        identity=identity(told.rule, None, name, [span], sources, cause),
        severity=told.severity,
        span=span,
        function=name,
        title=told.title,
        cause=told.cause,
        places=(span,),
        compile_ids=(told.compile_id,),
        evidence=told.evidence,
        advice=advise([OVERFLOW], told.node) if told.rule == Rule.NOT_FINITE else (),
        node_value=told.node.index,
    )


def _undeclared_write(table: ValueTable) -> _Told | None:
    """The first operator that changes what its schema does not name: what compiled code computes then is no rule."""
    node = next((each for each in table.nodes if (known := table.facts.get(each.index)) and known.writes), None)
    if node is None:
        return None
    written, call = attribute_name(table.facts[node.index].writes or ""), table.call_of(node)
    title = f"{_title(node)} writes to {written} in {_place(call)}, and does not declare that"
    cause = (
        "by its schema it changes no input: compiled code may compute other values than uncompiled code; "
        "`mutates_args` of `torch.library.custom_op` declares it"
    )
    return _Told(Rule.WRONG_VALUE, "error", node, call.compile_id, title, cause, tuple(_input_facts(table, node)))


def _wrong_value(table: ValueTable) -> _Told | None:
    node = table.first_wrong
    if node is None:
        return None
    stored, call, known = table.stored[node.index], table.call_of(node), table.facts.get(node.index)
    if known is not None and known.gradient_of is not None:
        return _wrong_gradient(node, call, known, known.gradient_of)
    by = f"kernel {stored.kernel}" if stored.kernel else "compiled code"
    title = f"{by} gives a wrong {node.node} ({operator_name(node.op)}) in {_place(call)}"
    cause = "uncompiled it is another, and rounding does not explain that"
    if stored.off_float64 is not None:
        far = f"{stored.off_float64:.3g} of the largest element"
        cause = f"it is off by {far} from float64, on what compiled code stored before; rounding does not explain that"
    facts = [*_element_facts(node, stored), *_input_facts(table, node)]
    return _Told(Rule.WRONG_VALUE, "error", node, call.compile_id, title, cause, tuple(facts))


def _wrong_gradient(node: NodeValue, call: ValuesCall, known: NodeFacts, of: str) -> _Told:
    """A backward graph that is wrong: what compiles it is right."""
    title = f"AOTAutograd's {call.graph} graph is wrong at {node.node} ({operator_name(node.op)})"
    far = "" if known.gradient_off is None else f"off by {known.gradient_off:.3g} of its largest element"
    cause = (
        f"the gradient of {attribute_name(of)} that it returns is {far or 'another'}, by autograd of the uncompiled "
        "graph in float64; a decomposition of a backward operator may be wrong"
    )
    facts = Fact("autograd", ", ".join(known.autograd)), Fact("compiled", ", ".join(known.compiled))
    return _Told(Rule.WRONG_VALUE, "error", node, call.compile_id, title, cause, facts)


def _not_finite(table: ValueTable) -> Iterator[_Told]:
    """The first NaN that is returned, or the overflow that it is computed of; without one, the first infinity by an
    overflow that is returned.

    After it, the first in other graphs and at other lines that follow from no other.
    """
    first = table.first_nan
    nodes = table.nodes if first is None else table.origins_of(first, not_finite=True)
    told = [node for node in nodes if overflows(node) and (first is not None or table.comes_out(node))]
    node = told[0] if told else first
    if node is None:
        return
    yield _not_finite_node(table, node, first)
    graphs, spans = {table.graph_of(node)}, {node.span}
    for each in table.nodes:
        if len(graphs) == _MAX_NOT_FINITE:
            return
        if not (each.summary.nan or overflows(each)) or table.graph_of(each) in graphs or each.span in spans:
            continue
        if each.cause and table.comes_out(each) and not any(map(_follows, table.origins_of(each, not_finite=True))):
            graphs.add(table.graph_of(each))
            spans.add(each.span)
            yield _not_finite_node(table, each, None)


def _follows(origin: NodeValue) -> bool:
    """Whether what is computed of a node may follow from another graph, or from an earlier NaN."""
    return origin.op == "placeholder" or origin.summary.nan > 0


def _is_finite(node: NodeValue) -> bool:
    return not (node.summary.nan or node.summary.inf)


def _not_finite_node(table: ValueTable, node: NodeValue, becomes: NodeValue | None) -> _Told:
    call, summary = table.call_of(node), node.summary
    number = summary.nan or summary.inf
    what = "NaN" if summary.nan else "infinite"
    total = element_count(summary.shape)
    title = f"{_title(node)} has {number:,} {what} of {total:,} in {_place(call)}"
    cause = node.cause
    if node.op == "placeholder":
        is_first = bool(call.call) and all(each.call >= call.call for each in table.calls)
        more = f"; --calls 0..{call.call - 1} shows the calls before" if is_first else ""
        cause = f"it comes in from outside of this graph{more}"
    facts = [*_input_facts(table, node), *_infinity_facts(table, node)]
    if becomes is not None and becomes is not node:
        facts.append(Fact("becomes", f"{becomes.node}: {range_text(becomes)}", becomes.span))
    return _Told(Rule.NOT_FINITE, "warning", node, call.compile_id, title, cause, tuple(facts))


def _infinity_facts(table: ValueTable, node: NodeValue) -> Iterator[Fact]:
    """What made the last infinity that a NaN is computed of: ``0 * inf`` says nothing of the division before it."""
    origins = table.origins_of(node) if node.summary.nan and node.cause else ()
    made = [each for each in origins if each.summary.inf and not any(map(_is_infinite, table.inputs_of(each)))]
    if made and made[-1] not in table.inputs_of(node):
        yield Fact("first infinity", _input_text(made[-1]), made[-1].span)


def _is_infinite(node: NodeValue) -> bool:
    return node.summary.inf > 0


def overflows(node: NodeValue) -> bool:
    """Whether a value became infinite because its type has no such number."""
    return "overflows" in (node.cause or "")


OVERFLOW: Remedy[NodeValue] = Remedy(
    "value.overflow",
    "float16 ends at 65,504: compute this in float32 (`.float()` on what the line reads), or in bfloat16, which has "
    "the range of float32.",
    lambda node: slots_if("overflows float16" in (node.cause or "")),
)


def _low_precision(table: ValueTable) -> _Told | None:
    node = table.first_imprecise
    units = _units(node) if node is not None else None
    if node is None or units is None:
        return None
    call, usual = table.call_of(node), table.typical_units[node.summary.dtype]
    title = f"{_title(node)} loses precision in {node.summary.dtype}, in {_place(call)}"
    cause = (
        f"on the same inputs it is off by {node.off_float64:.3g} of its largest element from float64: {units:,.0f} "
        f"units in the last place, where others of its type are off by {usual:.3g}"
    )
    return _Told(Rule.LOW_PRECISION, "warning", node, call.compile_id, title, cause, tuple(_input_facts(table, node)))


def _title(node: NodeValue) -> str:
    name = attribute_name(node.node)
    return name if node.op in ("placeholder", "get_attr") else f"{name} ({operator_name(node.op)})"


def _place(call: ValuesCall) -> str:
    return f"the {call.graph} graph{f', call {call.call}' if call.call else ''}"


def _input_facts(table: ValueTable, node: NodeValue) -> Iterator[Fact]:
    read = table.inputs_of(node)
    for each in read:
        yield Fact("reads", _input_text(each), each.span if each.span != node.span else None)
    if node.op != "placeholder" and not any(map(_is_weight, read)):
        weight = next(
            (each for each in reversed(table.origins_of(node)) if any(map(_is_weight, table.inputs_of(each)))), None
        )
        if weight is not None:
            names = ", ".join(attribute_name(each.node) for each in table.inputs_of(weight) if _is_weight(each))
            yield Fact("last weights", f"{names}, which {weight.node} reads", weight.span)


def _is_weight(node: NodeValue) -> bool:
    """Whether it is a parameter or a buffer of a module: it tells which of several layers a line belongs to."""
    return node.op == "placeholder" and "." in attribute_name(node.node)


def _input_text(node: NodeValue) -> str:
    """A value, and what made it infinite if it is."""
    return (
        f"{attribute_name(node.node)}: {range_text(node)}{f'; {node.cause}' if node.summary.inf and node.cause else ''}"
    )


def _element_facts(node: NodeValue, stored: StoredNodeValue) -> Iterator[Fact]:
    """The recorded elements that differ most, uncompiled and as compiled code stored them."""
    pairs = list(zip(node.summary.samples, stored.summary.samples, strict=False))
    apart = sorted((pair for pair in pairs if pair[0] != pair[1]), key=lambda pair: -_difference(*pair))
    if apart:
        yield Fact("uncompiled", ", ".join(own for own, _ in apart[:_MAX_ELEMENTS]))
        yield Fact("compiled", ", ".join(other for _, other in apart[:_MAX_ELEMENTS]))


def _difference(own: str, other: str) -> float:
    try:
        apart = abs(float(own) - float(other))
    except ValueError:  # a stranger's recording
        return 0.0
    return math.inf if math.isnan(apart) else apart
