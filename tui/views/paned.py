"""The base class of a screen with panes side by side."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.css.scalar import Scalar
from textual.widget import Widget

from tui.code_panes import PANE_TITLES, PANES, CodePaneModel
from tui.key_bindings import footer_key
from tui.views.base import View
from tui.widgets.code_pane import CodePane
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines

_MIN_PANE_WIDTH = 38  # minimum columns of a pane beside others
_MIN_THREE = 110  # columns from which on there are three panes
_MIN_EQUAL = 150  # columns from which on the one in the middle is not narrowed
_MIN_ROWS = 16  # rows from which on a narrow terminal has two panes
_TWO = 2
_OPPOSITE = {"later": "dynamo", "dynamo": "later"}  # the panes of the backward and the forward graph
_MIN_CURRENT_WIDTH = 60  # columns that the current pane has at least where there is room: its title has to fit


class PanedView(View):
    """Lays out the panes and moves the focus between them. Subclasses fill the panes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("z", "zoom", "zoom", "code.zoom", "show this pane in full width, and back")
    ]

    def __init__(self) -> None:
        super().__init__()
        self._zoomed = False
        self._current_pane = "source"  # the pane that last had the focus
        self.beside = ""  # the pane that is shown beside the source
        self.model = CodePaneModel()  # the documents of the compile that is shown
        self._stage_message = ""  # shown instead of a kernel's stages: progress or an error

    def pane(self, name: str) -> CodePane:
        return self.query_one(f"#pane-{name}", CodePane)

    def panes(self) -> dict[str, CodePane]:
        return {name: self.pane(name) for name in PANES}

    @property
    def current_pane(self) -> CodePane:
        return self.pane(self._current_pane)

    @property
    def node_details(self) -> StyledLines:
        return self.query_one("#code-node", StyledLines)

    @property
    def pane_order(self) -> tuple[str, ...]:
        """The panes from left to right. The stage pane is added once a kernel is compiled."""
        return PANES if self._stage_message or self.model.documents_of["stage"] else PANES[:-1]

    @property
    def partner(self) -> str | None:
        """What a kernel was compiled to, and the graph of that; of a backward graph the forward one, and back."""
        if self.model.forward_graph is not None and self._current_pane in _OPPOSITE:
            return _OPPOSITE[self._current_pane]
        return {"kernel": "stage", "stage": "later"}.get(self._current_pane)

    def highlight(self) -> None:
        """Highlight the lines linked to the cursor's line."""

    def first_focus(self) -> Widget:
        return self.current_pane

    def go_to_pane(self, name: str) -> None:
        """Make a pane the current one, with the focus if the screen is shown."""
        self._current_pane = name
        self.lay_out()
        if self.is_current:
            self.current_pane.focus()
        self.highlight()

    def on_mount(self) -> None:
        self.lay_out()

    def on_resize(self, _: events.Resize) -> None:
        self.lay_out()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        name = (event.widget.id or "").removeprefix("pane-")
        if isinstance(event.widget, CodePane) and name != self._current_pane:
            self._current_pane = name
            self.lay_out()
            self.highlight()

    async def screen_shown(self) -> None:
        self.highlight()

    def lay_out(self) -> None:
        """Show the current pane, and as many others as are wide enough to be read."""
        order, shown = self.pane_order, self._shown_panes()
        written = {name for name in shown if self.pane(name).document is not None}
        last = max(shown, key=order.index)
        here = order.index(self._current_pane) if self._current_pane in order else 0
        after = next(iter(order[here + 1 :]), None)
        for name, pane in self.panes().items():
            pane.display = name in shown  # at once: a class could come after the focus
            pane.set_class(name not in written and bool(written), "empty")
            pane.set_class(name == self._current_pane, "current")
            is_between = name not in (self._current_pane, order[0], last) and len(shown) > _TWO
            pane.set_class(is_between and self.app.size.width < _MIN_EQUAL, "middle")
            self._limit(pane, others=bool(written - {name}))
            is_next = name == last and after is not None and after not in shown
            subtitle = f"tab: {PANE_TITLES.get(after or '', after)} ▸" if is_next else ""
            if subtitle != (pane.border_subtitle or ""):  # a new one draws every line again
                pane.border_subtitle = subtitle

    def _limit(self, pane: CodePane, *, others: bool) -> None:
        """Give the current pane no more columns than its text takes, so that the others have the rest."""
        limited = others and pane.has_class("current") and self.app.size.width >= 4 * _MIN_PANE_WIDTH
        most = max(_MIN_CURRENT_WIDTH, pane.full_width) if limited and pane.document is not None else None
        limit = None if most is None else Scalar.from_number(most)
        if pane.styles.max_width != limit:
            pane.styles.max_width = limit

    def _shown_panes(self) -> frozenset[str]:
        """Return the panes that fit: the current one, its partner, the source, code, then those nearest to `beside`.

        So of three panes one is the source, one a graph and one what was made of it.
        """
        order = self.pane_order
        current = self._current_pane if self._current_pane in order else order[0]
        if current != order[0]:
            self.beside = current
        here = order.index(self.beside) if self.beside in order else 1
        room = self._room()
        code = order[-1] if room > _TWO and self.pane(order[-1]).document is not None else None
        ranked = (current, self.partner, order[0], code, *order[here:], *reversed(order[:here]))
        return frozenset(list(dict.fromkeys(name for name in ranked if name in order))[:room])

    def _room(self) -> int:
        """Return how many panes fit. The current one takes half of the width, each other one at least the minimum.

        From 110 columns on there are three, the one in the middle narrower than the others; in a small terminal one.
        """
        (width, height), shown = self.app.size, [self.pane(name).document for name in self.pane_order]
        if self._zoomed or not any(shown) or (width < _MIN_THREE and height < _MIN_ROWS):
            return 1
        return max(_TWO + (width >= _MIN_THREE), 1 + width // 2 // _MIN_PANE_WIDTH)

    def action_zoom(self) -> None:
        self._zoomed = not self._zoomed
        self.lay_out()

    def step(self, way: int) -> bool:
        """Move to the next or previous pane, including hidden ones, and to the node's details after the last."""
        order = self.pane_order
        here = order.index(self._current_pane) + way
        if self.node_details.has_focus:
            self._current_pane = order[0 if way > 0 else -1]
        elif not 0 <= here < len(order):
            self.node_details.focus()
            return True
        else:
            self._current_pane = order[here % len(order)]
        self.lay_out()
        pane = self.current_pane
        if pane.cursor == 0 and pane.highlighted:  # a new pane starts at the linked line
            pane.set_reactive(Lines.cursor, pane.first_highlighted)
            pane.reveal(pane.cursor, middle=True)
        elif pane.count and not pane.is_line_visible(pane.cursor):  # a cursor off the screen moves onto it
            pane.set_reactive(Lines.cursor, pane.first_visible_linked)
        pane.focus()
        self.highlight()  # before the message of the focus, which comes after the screen is drawn
        return True
