"""The graph as a picture: a node with its neighbours, to be walked with the arrows. Modules and lines are folded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from dynadiag.render.dataflow.boxes import DrawableGraph, FoldedGraph, GraphBox
from dynadiag.render.dataflow.svg import MAX_BOXES, graph_svg
from tui.dialog import Dialog
from tui.documents import DocumentRef
from tui.key_bindings import footer_key
from tui.location import Location
from tui.styled_text import one_line
from tui.widgets.graph_canvas import GraphCanvas

_CELLS_PER_BOX = 150  # cells of the terminal that a box with its lines takes
_MIN_BOXES = 6
_NO_NAME = re.compile(r"[^\w.-]+")  # what the name of a file shall not have


class GraphScreen(Dialog[Location]):
    """Returns the line of the printed graph to go to, or ``None``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("up,k", "walk('up')", "to what it reads", "graph.up"),
        footer_key("down,j", "walk('down')", "to what reads it", "graph.down"),
        footer_key("left,h", "walk('left')", "to the box on the left", "graph.left"),
        footer_key("right,l", "walk('right')", "to the box on the right", "graph.right"),
        footer_key("enter", "choose", "open the box, or go to the node's line", "graph.choose"),
        footer_key("minus,backspace", "fold", "fold the module or line around this node", "graph.fold"),
        footer_key("*", "fold_all", "fold everything", "graph.fold-all"),
        footer_key("n", "node(1)", "to the node that runs next", "graph.next-node"),
        footer_key("N", "node(-1)", "to the node that ran before", "graph.former-node"),
        footer_key("V", "values", "show its value uncompiled, in float64 and compiled", "graph.values"),
        footer_key("w", "write", "write the whole graph as SVG", "graph.write"),
        footer_key("escape,q,v", "dismiss", "close", "graph.close"),
    ]

    def __init__(
        self,
        ref: DocumentRef,
        flow: DrawableGraph,
        start: str,
        legend: str,
        write: Callable[[str, str], None],
        compare: Callable[[str], None],
    ) -> None:
        """Start at a node of the graph of a document. The ``legend`` stands behind the title.

        ``write`` writes a new file of a name, with a text. ``compare`` shows the value of a node.
        """
        super().__init__()
        self._ref, self._flow, self._start, self._write, self._compare = ref, flow, start, write, compare
        self._legend = legend
        self._opened = set(flow.region_keys_of(start))
        self._folded = FoldedGraph({}, ())
        self._selected = ""

    def compose(self) -> ComposeResult:
        yield GraphCanvas()

    def on_mount(self) -> None:
        self._fold(self._start)

    def on_resize(self) -> None:
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - as Textual has it
        """Allow only to close it before a box is selected."""
        return action == "dismiss" or bool(self._selected)

    @property
    def canvas(self) -> GraphCanvas:
        return self.query_one(GraphCanvas)

    @property
    def selected(self) -> GraphBox:
        return self._folded.boxes[self._selected]

    def on_graph_canvas_clicked(self, message: GraphCanvas.Clicked) -> None:
        message.stop()
        if message.key == self._selected:
            self.action_choose()
        else:
            self._selected = message.key
            self._show()

    def action_walk(self, way: str) -> None:
        """Select the next box in a direction: of those that are connected, or beside it, the nearest."""
        places = self.canvas.places
        if self._selected not in places:  # it is not drawn yet
            return
        here = places[self._selected]
        if way in ("up", "down"):
            column = 0 if way == "up" else 1
            found = [edge[column] for edge in self._folded.edges if edge[1 - column] == self._selected]
            found = [key for key in found if key in places]
        else:
            side = -1 if way == "left" else 1
            found = [key for key, box in places.items() if box.y == here.y and (box.x - here.x) * side > 0]
        if found:
            self._selected = min(
                found, key=lambda key: (abs(places[key].middle - here.middle), abs(places[key].y - here.y))
            )
            self._show()
        else:
            words = {"up": "it reads nothing", "down": "nothing reads it"}
            self.notify(words.get(way, f"no box is to the {way}"))

    def action_choose(self) -> None:
        """Open a folded box, or go to the line of a node in the printed graph."""
        if self.selected.kind == "region":
            self._opened.add(self._selected)
            inputs = {box.nodes[0] for box in self._folded.boxes.values() if box.kind == "input"}
            inner = [name for name in self.selected.nodes if self._flow.region_keys_of(name)]
            self._fold(next((name for name in inner if name not in inputs), self.selected.nodes[0]))
        else:
            ref = self._ref
            self.dismiss(Location("code", ref.compile_id, document=ref.key, line=self.selected.line))

    def action_node(self, by: int) -> None:
        """Select the node that runs next, or ran before, and open what it is in."""
        order = self._flow.operators
        own = [place for place, name in enumerate(order) if name in self.selected.nodes]
        place = (own[-1] if by > 0 else own[0]) + by if own else 0
        if 0 <= place < len(order):
            self._opened.update(self._flow.region_keys_of(order[place]))
            self._fold(order[place])
        else:
            self.notify("this is the last node" if by > 0 else "this is the first node")

    def action_values(self) -> None:
        self._compare(self.selected.nodes[-1])

    def action_fold(self) -> None:
        """Fold the innermost open module or line around the selected box."""
        name = self.selected.nodes[-1]
        around = [key for key in self._flow.region_keys_of(name) if key in self._opened]
        if around:
            self._opened.discard(around[-1])
            self._fold(name)
        else:
            self.notify("nothing is open around this box")

    def action_fold_all(self) -> None:
        self._opened.clear()
        self._fold(self.selected.nodes[-1])

    def action_write(self) -> None:
        """Write the whole graph as SVG: every node, or folded if they are too many."""
        whole = self._flow.fold(everything=True)
        if len(whole.boxes) > MAX_BOXES:
            whole = self._flow.fold(self._opened)
        if len(whole.boxes) > MAX_BOXES:
            self.notify(f"too large for a picture: {len(whole.boxes):,} boxes", severity="warning")
        else:
            ref = self._ref
            name = _NO_NAME.sub("-", "-".join(part for part in (ref.stage, ref.direction, ref.compile_id) if part))
            self._write(f"{name.strip('.-')}.svg", graph_svg(whole))

    def _fold(self, name: str) -> None:
        """Draw the boxes anew, and select the one that a node is in."""
        self._folded = self._flow.fold(self._opened)
        self._selected = self._flow.box_of(self._folded, name) or next(iter(self._folded.boxes))
        self._show()

    def _show(self) -> None:
        if not self._selected or not self.is_mounted:
            return
        most = max(_MIN_BOXES, self.size.width * self.size.height // _CELLS_PER_BOX)
        near = self._folded.neighbours(self._selected, most)
        self.canvas.show(near, self._selected)
        reads, readers = (sum(edge[side] == self._selected for edge in self._folded.edges) for side in (1, 0))
        shown = f"{len(near.boxes):,} of {len(self._folded.boxes):,} boxes"
        title = f"{one_line(self._ref.title)}: {one_line(self.selected.title)}"
        self.canvas.border_title = f"{title}, reads {reads:,}, read by {readers:,}{self._legend}"
        enter = "enter opens" if self.selected.kind == "region" else "enter goes"
        self.canvas.border_subtitle = f"{shown} · arrows n N walk, V value, {enter}, esc closes, - folds, w SVG"
