"""The value of a node, as a dialog: uncompiled, in float64 and as compiled code stored it, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from dynadiag.diff.value_differences import distance, sample_number
from dynadiag.explanation.formatting import count
from dynadiag.explanation.values import operator_name
from dynadiag.recording.records import NodeValue, StoredNodeValue, ValuesCall, ValueSummary
from dynadiag.recording.torch_text.sources import attribute_name
from dynadiag.render.values import call_name
from tui.dialog import Dialog
from tui.key_bindings import footer_key
from tui.location import Location
from tui.node_values import NO_CALL, NodeValues, value_lines
from tui.styled_text import Line, line, one_line
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines

_Side = ValueSummary | None
_NAMES = ("eager", "float64", "compiled")
_WIDTH, _NAME_WIDTH = 19, 12  # columns of a side, and of what stands before them
_BAR = 18  # columns of the longest bar of the histogram
_BINS = 10
_MAX_ELEMENTS = 8  # that are listed, those that differ most


class ValueScreen(Dialog[Location]):
    """Returns the location of the node that it shows at the end, or ``None`` for the one that it began with."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("escape,q,V", "close", "close", "value.close"),
        footer_key("n", "step(1)", "next node", "value.next"),
        footer_key("N", "step(-1)", "former node", "value.former"),
        footer_key(")", "call(1)", "next call", "value.next-call"),
        footer_key("(", "call(-1)", "former call", "value.former-call"),
    ]

    def __init__(
        self, values: NodeValues, node: NodeValue, float64_of: Callable[[ValuesCall], Mapping[str, ValueSummary]]
    ) -> None:
        super().__init__()
        self._values, self._node, self._float64_of = values, node, float64_of
        self._first = node

    def compose(self) -> ComposeResult:
        yield StyledLines(wrap=True)

    def on_mount(self) -> None:
        self._show()

    def on_lines_chosen(self, _: Lines.Chosen) -> None:
        self.action_close()

    def action_close(self) -> None:
        """Close the dialog; the Code screen goes to the node."""
        node = self._node
        moved = Location("code", self._values.table.call_of(node).compile_id, item=node.index)
        self.dismiss(None if node is self._first else moved)

    def action_step(self, by: int) -> None:
        if (node := self._values.step(self._node, by)) is None:
            self.notify("this is the last recorded node" if by > 0 else "this is the first recorded node")
        else:
            self._node = node
            self._show()

    def action_call(self, by: int) -> None:
        history = self._values.table.history(self._node)
        place = history.index(self._node) + by
        if 0 <= place < len(history):
            self._node = history[place]
            self._show()
        else:
            self.notify(NO_CALL)

    def _show(self) -> None:
        lines, node = self.query_one(StyledLines), self._node
        call = self._values.table.call_of(node)
        parts = (one_line(attribute_name(node.node)), call_name(call), self._values.position(node))
        lines.border_title = " · ".join(filter(None, parts))
        lines.border_subtitle = "n next node, N former node, ) next call, ( former call, escape closes"
        wide = self._float64_of(call).get(node.node)
        lines.show(list(_screen_lines(self._values, node, wide)))


def _screen_lines(values: NodeValues, node: NodeValue, wide: ValueSummary | None) -> Iterator[Line]:
    stored, summary = values.table.stored.get(node.index), node.summary
    reads = f" of {', '.join(one_line(attribute_name(name)) for name in node.inputs)}" if node.inputs else ""
    place = f"  {one_line((node.span.file or '').rpartition('/')[2])}:{node.span.line}" if node.span.line else ""
    yield line((one_line(operator_name(node.op)), "key"), f"{reads}", (place, "dim"))
    yield line((f"{one_line(summary.dtype)} [{', '.join(map(one_line, summary.shape))}]", "good"))
    yield from value_lines(values, node)
    yield Line()
    sides: tuple[_Side, ...] = (summary, wide, stored.summary if stored is not None else None)
    yield line((" " * _NAME_WIDTH + "".join(f"{name:<{_WIDTH}}" for name in _NAMES), "title"))
    yield from _statistics(sides, node, stored)
    if wide is None and node.off_float64 is not None:
        yield line(("float64: only how far it is off was kept, as of a large product, compared in some rows", "dim"))
    elif wide is None:
        yield line(("float64: the node is a view, or reads no number of less precision, or does not run so", "dim"))
    if stored is None:
        yield line(("compiled: no kernel stores it, and it is not returned", "dim"))
    yield Line()
    elements = [[] if side is None else [sample_number(text) for text in side.samples] for side in sides]
    yield from _histogram(elements)
    yield Line()
    eager, *others = elements
    rows = []
    for at, own in enumerate(eager):
        row = [own, *(side[at] if at < len(side) else None for side in others)]
        apart = max((distance(own, number) for number in row[1:] if number is not None), default=0.0)
        rows.append((apart, at, row))
    differing = sorted((row for row in rows if row[0] > 0), key=lambda row: (-row[0], row[1]))[:_MAX_ELEMENTS]
    if differing:
        yield line(("elements that differ most", "title"))
    elif len(eager) > 1:
        yield line(("the recorded elements are equal, in seven digits", "dim"))
    for _, at, row in differing:
        cells = "".join(f"{_cell(number):<{_WIDTH}}" for number in row)
        yield line((f"{f'[{at}]':<{_NAME_WIDTH}}", "dim"), cells)


def _statistics(sides: Sequence[_Side], node: NodeValue, stored: StoredNodeValue | None) -> Iterator[Line]:
    for name in ("min", "max", "mean", "norm", "nan", "inf", "zero"):
        cells = [_cell(None if side is None else getattr(side, name)) for side in sides]
        yield line((f"{name:<{_NAME_WIDTH}}", "dim"), "".join(f"{cell:<{_WIDTH}}" for cell in cells))
    off = (node.off_float64, None, stored.off_float64 if stored else None)
    eager, wide, compiled = (f"{_cell(each):<{_WIDTH}}" for each in off)
    role = "error" if stored is not None and stored.wrong else ""
    yield line((f"{'off float64':<{_NAME_WIDTH}}", "dim"), eager, wide, (compiled, role))


def _cell(number: float | None) -> str:
    return "-" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:.8g}"


def _histogram(elements: Sequence[Sequence[float]]) -> Iterator[Line]:
    """How the recorded elements are spread, in the same bins for every side."""
    finite = [number for side in elements for number in side if math.isfinite(number)]
    if not finite:
        yield line(("no recorded element is finite", "dim"))
        return
    low, high = min(finite), max(finite)
    step = high / _BINS - low / _BINS
    yield line((f"spread of {count(max(map(len, elements)), 'element')}", "title"))
    bins = [[0] * _BINS for _ in elements]
    for side, counts in zip(elements, bins, strict=True):
        for number in side:
            if math.isfinite(number):
                counts[min(_BINS - 1, int((number / step) - (low / step))) if step else 0] += 1
    largest = max(max(counts) for counts in bins)
    for at in range(_BINS if step else 1):
        bars = "".join(f"{'█' * math.ceil(counts[at] * _BAR / largest):<{_WIDTH}}" for counts in bins)
        yield line((f"{low + at * step:<{_NAME_WIDTH}.3g}", "dim"), (bars, "bar"))
