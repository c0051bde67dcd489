"""The recorded values on the Code screen: at the margins, below the panes, and the steps from node to node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dynadiag.recording.records import NodeValue, ValuesCall, ValueSummary
from tui.code_panes import CodePaneModel
from tui.documents import DocumentRef
from tui.line_links import LineLinks
from tui.location import Location
from tui.node_values import (
    NO_CALL,
    NodeValues,
    ValueMargin,
    compiled_text,
    is_input,
    read_float64,
    value_lines,
    without_values,
)
from tui.styled_text import Line, line, one_line

if TYPE_CHECKING:
    from tui.session import Session
    from tui.views.pane_actions import PaneActions


_NO_VALUE = "this node has no recorded value: n goes to one that has"
_MAX_STORED = 20  # values that a kernel stores that are listed


class CodeValues:
    """What a Code screen knows of values: which call is shown, and what was read in float64."""

    def __init__(self, view: PaneActions) -> None:
        self._view = view
        self._compile_id = ""  # the compile that is shown
        self._call: int | None = None  # the number of the call whose values are shown
        self._float64: dict[int, Mapping[str, ValueSummary]] = {}
        self._session: Session | None = None  # the recording that this is of

    @property
    def _board(self) -> CodePaneModel:
        return self._view.model

    def board_shown(self) -> None:
        """Take in the compile that is shown: of its calls the first with a wrong value, or else the first."""
        board = self._board
        if self._session is not board.session:
            self._session, self._compile_id, self._float64 = board.session, "", {}
        if board.compile_id != self._compile_id:
            self._compile_id = board.compile_id
            self._call = board.values.suspect_call(board.compile_id) if board.values is not None else None

    def margins(self, ref: DocumentRef, links: LineLinks) -> Mapping[int, ValueMargin]:
        """Return the margins of the lines of a graph whose nodes have values."""
        values = self._board.values
        found = {}
        for name, row in links.defined.items() if values is not None else ():
            node, _ = self.of_node(ref, name)
            if values is not None and node is not None and not is_input(node):
                found[row] = values.margin(node, self._shape(ref, name))
        return found

    def _shape(self, ref: DocumentRef, name: str) -> str:
        """The shape of a node of a graph, as it stands at the margin."""
        row = self._board.links[ref.key].defined.get(name, -1)
        margins = self._board.documents[ref.key].margins
        return margins[row] if 0 <= row < len(margins) else ""

    def of_node(self, ref: DocumentRef, name: str) -> tuple[NodeValue | None, str]:
        """Return the value of a node of a graph, and the name of Dynamo's node if that is another one.

        Of the nodes of a later graph that were made of one of Dynamo's, the last has its value, if it has its shape.
        """
        board, values = self._board, self._board.values
        if values is None or ref.key not in board.links:
            return None, ""
        if _is_recorded(ref):
            backward = ref.direction == "backward"
            return values.named(board.compile_id, name, backward=backward, call=self._call), ""
        source = self._sources(ref).get(name, "")
        node = values.named(board.compile_id, source, backward=False, call=self._call)
        is_same = node and self._shape(ref, name).partition("[")[2] == f"{','.join(node.summary.shape)}]"
        return (node, source) if is_same else (None, "")

    def _sources(self, ref: DocumentRef) -> Mapping[str, str]:
        """Dynamo's node of each node of a later graph that is the last one made of it."""
        board = self._board
        if ref.key not in board.last_of:
            sources = board.sources(ref.key) or {}
            rows = board.links[ref.key].defined
            last = {sources[name][-1]: name for name in sorted(rows, key=lambda each: rows[each]) if sources.get(name)}
            board.last_of[ref.key] = {name: source for source, name in last.items()}
        return board.last_of[ref.key]

    def texts(self, ref: DocumentRef) -> Mapping[str, str]:
        """Return the range of the value of each node of a graph."""
        values = self._board.values
        nodes = ((name, self.of_node(ref, name)[0]) for name in self._board.links[ref.key].defined)
        return {name: values.margin(node, "").texts[0] for name, node in nodes if values and node is not None}

    def legend(self) -> str:
        """Return what the values beside nodes are, and of which call."""
        return "" if self._call is None else f" · call {self._call}, off from float64"

    def here(self) -> tuple[NodeValue | None, str]:
        """Return the value of the cursor's node, and the name of Dynamo's node if that is another one."""
        spot = self._view.graph_spot() if self._board.values is not None else None
        name = spot.links.names.get(spot.line) if spot is not None and spot.line is not None else None
        return self.of_node(spot.document.ref, name) if spot is not None and name is not None else (None, "")

    def lines(self) -> list[Line]:
        """Return what is known of the value of the cursor's node; nothing where it has none."""
        (node, of), values = self.here(), self._board.values
        return value_lines(values, node, of) if values is not None and node is not None else []

    def stored_lines(self, kernel: str) -> list[Line]:
        """Return what a kernel stores in the recorded call, the wrong ones first."""
        values, id_ = self._board.values, self._board.compile_id
        if values is None:
            return []
        own = [
            (node, stored)
            for node in values.table.nodes
            if (stored := values.table.stored.get(node.index)) is not None
            and stored.kernel == kernel
            and values.table.call_of(node).compile_id == id_
        ]
        own.sort(key=lambda pair: not pair[1].wrong)
        return [
            line(
                ("stores ", "dim"),
                (one_line(node.node), "key"),
                (f"  {compiled_text(node, stored)}", "error" if stored.wrong else ""),
                to=Location("code", id_, item=node.index),
            )
            for node, stored in own[:_MAX_STORED]
        ]

    def status(self) -> str:
        """Return which call is shown, and where the cursor's node is in the order of execution."""
        (node, _), values = self.here(), self._board.values
        if values is None or node is None:
            return ""
        where = values.position(node)
        return f"{where}, call {values.table.call_of(node).call}" if where else ""

    # Steps

    def step(self, by: int) -> None:
        """Go to the node that runs next, or ran before."""
        if (values := self._values()) is None:
            return
        node, _ = self.here()
        target = values.step(node, by) if node is not None else self._nearest(values, by)
        if target is None:
            self._view.notify("this is the last recorded node" if by > 0 else "this is the first recorded node")
        else:
            self._view.go_to(Location("code", values.table.call_of(target).compile_id, item=target.index))

    def _values(self) -> NodeValues | None:
        """The values, or a message how to record some."""
        values = self._board.values
        if values is None or not values.steps:
            self._view.notify(without_values(self._view.session.run.target), markup=False)
            return None
        return values

    def _nearest(self, values: NodeValues, by: int) -> NodeValue | None:
        """The node of the shown call that is nearest below the cursor's line, or above it; or the call's first."""
        here = self._board.compile_id, self._call
        calls = [call for call in values.table.calls if (call.compile_id, call.call) == here]
        own = [node for node in values.steps if values.table.call_of(node) in calls]
        spot = self._view.graph_spot()
        if spot is not None and _is_recorded(spot.document.ref):
            rows, cursor = spot.links.defined, self._view.pane(spot.pane).cursor
            placed = [node for node in own if (rows.get(node.node, cursor) - cursor) * by > 0]
            if placed:
                return placed[0] if by > 0 else placed[-1]
        return own[0] if own else values.step(None, by)

    def show_call(self, by: int) -> None:
        """Show the values of the next or former recorded call of this compile."""
        if (values := self._values()) is None:
            return
        calls: Sequence[int | None] = values.calls(self._board.compile_id)
        place = calls.index(self._call) + by if self._call in calls else 0
        if 0 <= place < len(calls):
            self._set_call(calls[place])
            self._view.highlight()
        else:
            self._view.notify(NO_CALL)

    def _set_call(self, call: int | None) -> None:
        if call != self._call:
            self._call = call
            for name in ("dynamo", "later"):
                self._view.show_pane(name)

    def resolved(self, place: Location) -> Location:
        """Return the line of the node that a location names, and show the call that the node is of."""
        values = self._board.values
        node = values.node(place.item) if values is not None and place.item is not None else None
        if values is None or node is None:
            return replace(place, item=None)
        call = values.table.call_of(node)
        self._set_call(call.call)
        key = self._document_of(node, call)
        if key is None:
            return Location("code", place.compile_id)
        row = self._board.printed[key][1].defined[node.node]
        return Location("code", place.compile_id, document=key, line=row + 1)

    def _document_of(self, node: NodeValue, call: ValuesCall) -> str | None:
        """The graph that defines a node: Dynamo's, or the first backward graph that has it."""
        board = self._board
        pane = "later" if call.graph == "backward" else "dynamo"
        for ref in board.documents_of[pane]:
            is_own = pane == "dynamo" or ref.direction == "backward"
            if is_own and ref.key in board.printed and node.node in board.printed[ref.key][1].defined:
                return ref.key
        return None

    # Side by side

    def compare(self, node: NodeValue | None) -> None:
        """Show a node uncompiled, in float64 and compiled, side by side."""
        if (values := self._values()) is None:
            return
        if node is None:
            self._view.notify(_NO_VALUE, severity="warning")
            return
        call = values.table.call_of(node)

        def show(_: object) -> None:
            from tui.value_screen import ValueScreen

            self._view.browser.push_screen(ValueScreen(values, node, self._float64_of), self._view.browser.go_to)

        self._view.fetch("float64", lambda: self._float64_of(call), show)

    def _float64_of(self, call: ValuesCall) -> Mapping[str, ValueSummary]:
        if call.index not in self._float64:
            self._float64[call.index] = read_float64(self._view.session.recording, call)
        return self._float64[call.index]


def _is_recorded(ref: DocumentRef) -> bool:
    """Whether nodes of a graph were run: of Dynamo's, which all of AOTAutograd's come from, and of the backward one."""
    return ref.stage == "dynamo" or ref.direction == "backward"
