"""The recorded values of the nodes of graphs (``--values``): the steps between nodes, and the texts of the panes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynadiag.explanation.values import ValueTable, bounds_text, overflows
from dynadiag.recording.digest.runs import read_summary
from dynadiag.recording.json_values import json_object, list_or_empty
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import NodeValue, StoredNodeValue, ValuesCall, ValueSummary
from dynadiag.render.values import call_name, history_line
from tui.styled_text import Line, line, one_line

NO_CALL = "no other call of this graph was recorded there: `--calls 0..9` records more"
_EVENT = "dynadiag_values"


def without_values(target: str) -> str:
    """Return what to say of a recording that has no values."""
    return f"no values were recorded: `dynadiag record --values {one_line(target)}` records them"


@dataclass(frozen=True, slots=True)
class ValueMargin:
    """What stands at the right margin of a node's line: the longest of these texts that fits."""

    texts: tuple[str, ...]
    role: str


def is_input(node: NodeValue) -> bool:
    """Whether a node is what its graph is given: no step of it."""
    return node.op in ("placeholder", "get_attr")


class NodeValues:
    """The values of a recording by graph and name, and the nodes in the order of execution."""

    def __init__(self, table: ValueTable) -> None:
        self.table = table
        self.steps = [node for node in table.nodes if not is_input(node)]
        self._places = {node.index: place for place, node in enumerate(self.steps)}

    def node(self, index: int) -> NodeValue | None:
        return next((node for node in self.table.nodes if node.index == index), None)

    def named(self, compile_id: str, name: str, *, backward: bool, call: int | None = None) -> NodeValue | None:
        """Return the value of a node of a graph in the call with this number, or else in the first that has it."""
        found = self.table.named(compile_id, name, backward=backward)
        return next((node for node in found if self.table.call_of(node).call == call), found[0] if found else None)

    def step(self, node: NodeValue | None, by: int) -> NodeValue | None:
        """Return the node that runs next, or ran before; without a node the first or the last of all."""
        if node is None or node.index not in self._places:
            return self.steps[0 if by > 0 else -1] if self.steps else None
        place = self._places[node.index] + by
        return self.steps[place] if 0 <= place < len(self.steps) else None

    def position(self, node: NodeValue) -> str:
        """Return where a node is in the order of execution: ``node 17 of 210``; nothing for an input."""
        place = self._places.get(node.index)
        return f"node {place + 1:,} of {len(self.steps):,}" if place is not None else ""

    def calls(self, compile_id: str) -> Sequence[int]:
        return sorted({call.call for call in self.table.calls if call.compile_id == compile_id})

    def suspect_call(self, compile_id: str) -> int | None:
        """Return the first call of a compile in which a value is wrong or no number, or else its first."""
        suspects = (self.table.first_wrong, self.table.first_nan, self.table.first_overflow)
        calls = [self.table.call_of(node) for node in suspects if node is not None]
        found = next((call.call for call in calls if call.compile_id == compile_id), None)
        return next(iter(self.calls(compile_id)), None) if found is None else found

    def margin(self, node: NodeValue, shape: str) -> ValueMargin:
        """Return what stands at the margin of a node's line, behind its ``shape``."""
        summary, stored = node.summary, self.table.stored.get(node.index)
        bad = _not_finite(summary)
        wrong = "WRONG" if stored is not None and stored.wrong else ""
        short = " ".join(filter(None, (wrong, bad, bounds_text(summary, 3).replace(" ", ""))))
        off = f"off {node.off_float64:.0e}" if node.off_float64 else ""
        texts = (f"{shape}  {short}  {off}".strip(), f"{shape}  {short}".strip(), short, wrong or bad or shape)
        return ValueMargin(
            tuple(dict.fromkeys(filter(None, texts))), "error" if wrong or summary.nan or overflows(node) else "dim"
        )


def _not_finite(summary: ValueSummary) -> str:
    counts = ((summary.nan, "NaN"), (summary.inf, "inf"))
    return " ".join(f"{number:,} {what}" for number, what in counts if number)


def value_lines(values: NodeValues, node: NodeValue, of: str = "") -> list[Line]:
    """Return what is known of a node's value: eager, as compiled code stored it, and over the recorded calls.

    ``of`` names the node where it is not the one on the cursor's line.
    """
    summary = node.summary
    parts = [bounds_text(summary, 6), _not_finite(summary)]
    parts += [f"{name} {number:.4g}" for name, number in (("mean", summary.mean), ("norm", summary.norm)) if number]
    parts += [f"{summary.zero:,} zero"] if summary.zero else []
    parts += [f"off {node.off_float64:.2g} from float64"] if node.off_float64 is not None else []
    about = f"  {f'of {one_line(of)}, ' if of else ''}{call_name(values.table.call_of(node))}"
    role = "error" if summary.nan else ""
    made = (
        [line(("cause  ", "dim"), (one_line(node.cause), "error" if overflows(node) else role))] if node.cause else []
    )
    made.append(line(("value  ", "dim"), (", ".join(filter(None, parts)) or "empty", role), (about, "dim")))
    if (stored := values.table.stored.get(node.index)) is not None:
        text = compiled_text(node, stored)
        made.append(line(("stored ", "dim"), (text, "error" if stored.wrong else "")))
    history = values.table.history(node)
    if drawn := history_line(history):
        first, last = (values.table.call_of(one).call for one in (history[-len(drawn)], history[-1]))
        made.append(line(("calls  ", "dim"), (drawn, "key"), f"  largest of each call, {first} to {last}"))
    return made


def compiled_text(node: NodeValue, stored: StoredNodeValue) -> str:
    """Return how what compiled code stored compares, and which kernel stored it."""
    same = stored.summary.hash == node.summary.hash
    words = "same bits" if same else "rounding explains the difference"
    if stored.wrong:
        words = "WRONG: rounding does not explain it"
    elif not same and stored.summary.samples == node.summary.samples:
        words = "same in seven digits"
    by = f" by {one_line(stored.kernel)}" if stored.kernel else " as a result of compiled code"
    off = f", off {stored.off_float64:.2g} from float64" if stored.off_float64 is not None else ""
    bounds = "" if same else f", {bounds_text(stored.summary, 6) or _not_finite(stored.summary)}"
    return f"{words}{off}{bounds},{by}"


def read_float64(recording: Recording, call: ValuesCall) -> Mapping[str, ValueSummary]:
    """Read the nodes of a call in float64 on the inputs that they had. A recording of an older version has none."""
    event = next(iter(recording.events(_EVENT, start=call.index, limit=1)), None)
    nodes = list_or_empty(json_object(recording.payload(event.index)).get("nodes")) if event is not None else []
    return {
        str(node.get("node")): read_summary(wide)
        for node in nodes
        if isinstance(node, dict) and isinstance(wide := node.get("float64"), dict)
    }
