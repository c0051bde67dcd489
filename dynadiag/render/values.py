"""The values of the nodes of compiled graphs, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count, short_duration
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.values import EPSILON, ValueTable, bounds_text, operator_name, sizes
from dynadiag.recording.records import NodeValue, StoredNodeValue, ValuesCall, ValueSummary
from dynadiag.recording.torch_text.sources import attribute_name
from dynadiag.render.clean import clean_line
from dynadiag.render.findings import finding_text
from dynadiag.render.json_document import CommandDocument, document_of, encode
from dynadiag.render.paths import relative_path
from dynadiag.render.printer import Printer
from dynadiag.render.table import fitted_table
from dynadiag.render.wrap import truncate_middle

_RULES = (Rule.WRONG_VALUE, Rule.NOT_FINITE, Rule.LOW_PRECISION)
_MAX_ROWS = 40  # nodes of one call that are shown without --all
_MAX_NAME = 22  # columns of a node's name and its operator
VALUE_HEADS = ("node", "line", "value", "range", "not finite", "off", "compiled")
_BLOCKS = "▁▂▃▄▅▆▇█"
_MAX_HISTORY = 40  # calls of a sparkline, the last ones
_FIRST_CALLS = "0..9"
_NOT_JUDGED = "not judged"
_NUMERIC = ("not finite", "off")


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A value as compiled code stored or returned it. `off_float64` is null where it is not judged."""

    kernel: str | None
    off_float64: float | None
    wrong: bool
    min: float | None
    max: float | None
    mean: float | None
    nan: int
    inf: int
    zero: int
    hash: str
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeDocument:
    """The value of a node in one call.

    `inputs` are positions in the list. `off_float64` is the node's own error, relative to its largest element. `cause`
    is what made the first number that is not finite.
    """

    compile_id: str
    graph: str
    call: int
    node: str
    op: str
    file: str | None
    line: int | None
    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]
    min: float | None
    max: float | None
    mean: float | None
    norm: float | None
    nan: int
    inf: int
    zero: int
    hash: str
    samples: tuple[str, ...]
    off_float64: float | None
    cause: str | None
    inputs: tuple[int, ...]
    stored: StoredDocument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesDocument(CommandDocument):
    """The document of `dynadiag values`. `first_nan`, `first_inf` and `first_wrong` are positions in `nodes`.

    `first_nan` makes a NaN that its graph returns, as far as that is known.
    """

    target: str
    exit_code: int | None
    calls: int
    nodes: tuple[NodeDocument, ...]
    first_nan: int | None
    first_inf: int | None
    first_wrong: int | None
    kernel: str | None
    notes: tuple[str, ...]


def values_json(table: ValueTable, target: str, torch: str | None, exit_code: int | None) -> bytes:
    """Return the JSON document of the values of a run."""
    positions = {node.index: position for position, node in enumerate(table.nodes)}
    wrong = table.first_wrong

    def position(node: NodeValue | None) -> int | None:
        return None if node is None else positions[node.index]

    document = ValuesDocument(
        torch=torch,
        target=target,
        exit_code=exit_code,
        calls=len(table.calls),
        nodes=tuple(
            _node(table, node, tuple(positions[each.index] for each in table.inputs_of(node))) for node in table.nodes
        ),
        first_nan=position(table.first_nan),
        first_inf=position(table.first_inf),
        first_wrong=position(wrong),
        kernel=table.stored[wrong.index].kernel if wrong is not None else None,
        notes=tuple(_notes(table)),
    )
    return encode(document)


def _node(table: ValueTable, node: NodeValue, inputs: tuple[int, ...]) -> NodeDocument:
    call, summary, stored = table.call_of(node), node.summary, table.stored.get(node.index)
    return document_of(
        NodeDocument,
        summary,
        compile_id=call.compile_id,
        graph=call.graph,
        call=call.call,
        node=node.node,
        op=node.op,
        file=node.span.file,
        line=node.span.line,
        shape=sizes(summary.shape),
        stride=sizes(summary.stride),
        off_float64=node.off_float64,
        cause=node.cause,
        inputs=inputs,
        stored=None if stored is None else _stored(stored),
    )


def _stored(stored: StoredNodeValue) -> StoredDocument:
    own = {"kernel": stored.kernel, "off_float64": stored.off_float64, "wrong": stored.wrong}
    return document_of(StoredDocument, stored.summary, **own)


def _notes(table: ValueTable) -> Iterator[str]:
    for call in table.calls:
        for note in call_notes(call):
            yield f"{call_name(call)}: {note}"


def call_notes(call: ValuesCall) -> tuple[str, ...]:
    """Return the notes of a call. Of one that has no values they say why: its recording took no time."""
    return tuple(f"it has no values: {note}" for note in call.notes) if call.seconds is None else call.notes


def call_name(call: ValuesCall) -> str:
    """Return ``forward 0/0, call 3``."""
    return clean_line(f"{call.graph} {call.compile_id}, call {call.call}")


def value_report(explained: Explanation, printer: Printer, calls_option: str = "--calls ") -> str:
    """Return the values of a run as text, with a line end: the findings on them, then a table for each call.

    Of several calls only those with a finding have their table without ``--all``. ``calls_option`` is how the reader
    names other calls.
    """
    table = explained.values
    if table is None:
        why = "; ".join(explained.notes) or explained.headline.sentence
        if explained.graph_count and not explained.notes:
            option = calls_option.strip("= ")
            why = f"graphs were compiled, but none of the calls to record was made; {option} names them."
        why = why[:1].lower() + why[1:]
        return "\n".join(printer.wrap(f"No call of a compiled graph has values: {why}")) + "\n"
    found = [item for item in explained.findings if item.rule in _RULES]
    lines = [line for item in found for line in (*finding_text(item, explained, printer), "")]
    if not found:
        lines = [*_without_findings(table, printer, calls_option), ""]
    accused = {item.node_value for item in found}
    suspect = [call for call in table.calls if any(node.index in accused for node in table.nodes_of(call))]
    shown = suspect if suspect and not printer.all_ else table.calls
    for call in shown:
        lines += [*_call_lines(table, call, printer, explained.run.cwd), ""]
    if (others := len(table.calls) - len(shown)) > 0:
        lines += [printer.paint(f"{count(others, 'other call')} without a finding; --all shows them", "dim"), ""]
    return "\n".join(lines[:-1]) + "\n"


def _without_findings(table: ValueTable, printer: Printer, calls_option: str) -> list[str]:
    """The first lines where nothing is accused: what was looked at, and what was not."""
    if not table.nodes:
        return printer.wrap(f"Nothing is known of the values: {_unknown(table)}.")
    empty = [call for call in table.calls if call.notes and not table.nodes_of(call)]
    calls = count(len(table.calls) - len(empty), "call")
    sentence, is_whole = _good_sentence(table, calls)
    remarks = list[str]()
    if (infinite := table.first_inf) is not None:
        where = call_name(table.call_of(infinite))
        remarks.append(f"The first infinity is in {clean_line(attribute_name(infinite.node))} ({where}).")
    if empty:
        remarks.append(f"Not looked at: {', '.join(map(call_name, empty))}.")
    if not any(call.call for call in table.calls):
        first = f'"{_FIRST_CALLS}"' if calls_option.endswith("=") else _FIRST_CALLS
        remarks.append(f"Later calls are not recorded; {calls_option}{first} takes those too.")
    if any(call.notes for call in table.calls):
        remarks.append("The notes below say what was not looked at.")
    if remarks or not is_whole:
        return printer.wrap(" ".join((sentence, *remarks)))
    return [printer.paint(sentence, "good")]


def _good_sentence(table: ValueTable, calls: str) -> tuple[str, bool]:
    """What is known where nothing is accused, and whether compiled code was judged in all that it stored."""
    of = f"{count(len(table.nodes), 'node')} in {calls}"
    stored = [(node, one) for node in table.nodes if (one := table.stored.get(node.index)) is not None]
    judged = [one for node, one in stored if _stored_text(node, one) != _NOT_JUDGED]
    nan = "is returned" if all(map(table.is_followed, table.calls)) else "is known"
    if not judged:
        return f"No NaN {nan}, in {of}. No value of compiled code was judged.", False
    lost = len(stored) - len(judged)
    sentence = f"No NaN {nan}, and none of {count(len(judged), 'value')} that compiled code stored is wrong: {of}."
    return (f"{sentence} {lost:,} more {'is' if lost == 1 else 'are'} not judged." if lost else sentence), not lost


def _unknown(table: ValueTable) -> str:
    """Why no node has a value."""
    note = next((note for call in table.calls for note in call.notes), None)
    return clean_line(note).rstrip(".") if note else "no node has a name that --nodes matches"


def _call_lines(table: ValueTable, call: ValuesCall, printer: Printer, cwd: str | None) -> Iterator[str]:
    nodes = table.nodes_of(call)
    took = f", {short_duration(call.seconds)}" if call.seconds is not None else ""
    yield printer.paint(f"{call_name(call)}: {count(len(nodes), 'node')}{took}", "strong")
    for note in call_notes(call):
        yield from printer.wrap(clean_line(note), "    note: ")
    if nodes:
        shown = printer.first(nodes, _MAX_ROWS)
        rows = [value_row(table, node, cwd) for node in shown]
        yield from fitted_table(
            VALUE_HEADS,
            rows,
            printer.columns,
            numeric=_NUMERIC,
            shorten=dict.fromkeys(("line", "value"), truncate_middle),
        )
        if len(nodes) > len(shown):
            yield printer.paint(f"    ... and {len(nodes) - len(shown):,} more; --all shows them", "dim")


def value_row(table: ValueTable, node: NodeValue, cwd: str | None) -> tuple[str, ...]:
    """Return the cells of a node's value, one for each of `VALUE_HEADS`."""
    summary, stored = node.summary, table.stored.get(node.index)
    place = "" if node.span.line is None else f"{relative_path(node.span.file, cwd)}:{node.span.line}"
    return (
        truncate_middle(_title(node), _MAX_NAME),
        place,
        f"{clean_line(summary.dtype)}[{','.join(map(clean_line, summary.shape))}]",
        bounds_text(summary, 4),
        " ".join(f"{number:,} {what}" for number, what in ((summary.nan, "nan"), (summary.inf, "inf")) if number),
        "" if node.off_float64 is None else f"{node.off_float64:.1e}" if node.off_float64 else "0",
        _stored_text(node, stored),
    )


def _title(node: NodeValue) -> str:
    """``relu_3``, or ``y = relu`` where the name does not say what is computed."""
    name, op = clean_line(attribute_name(node.node)), clean_line(operator_name(node.op))
    return name if node.op in ("placeholder", "get_attr") or name.startswith(op) else f"{name} = {op}"


def _stored_text(node: NodeValue, stored: StoredNodeValue | None) -> str:
    """What compiled code stored, against the uncompiled value."""
    if stored is None:
        return ""
    if stored.wrong:
        return "WRONG"
    if stored.summary.hash == node.summary.hash:
        return "same"
    is_judged = stored.off_float64 is not None or stored.summary.nan or stored.summary.dtype not in EPSILON
    return "rounding" if is_judged else _NOT_JUDGED


def history_line(history: Sequence[NodeValue]) -> str:
    """Return a sparkline of the largest element of a node in each call, of the last 40; empty for one call."""
    return _sparkline([_largest(each.summary) for each in history[-_MAX_HISTORY:]]) if len(history) > 1 else ""


def _largest(summary: ValueSummary) -> float:
    """The absolute value of the largest element; not finite where one is not."""
    if summary.nan:
        return math.nan
    return math.inf if summary.inf else max(abs(summary.min or 0.0), abs(summary.max or 0.0))


def _sparkline(numbers: Sequence[float]) -> str:
    """Return a character for each number: a block as high as it is, ``!`` for NaN, ``^`` for infinity.

    >>> _sparkline([0.0, 1.0, 2.0, float("nan")])
    '▁▅█!'
    """
    finite = [number for number in numbers if math.isfinite(number)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BLOCKS) - 1) / (high - low) if math.isfinite(high - low) and high > low else 0.0
    return "".join(
        _BLOCKS[math.floor((number - low) * scale + 0.5)] if math.isfinite(number) else "!" if number != number else "^"
        for number in numbers
    )
