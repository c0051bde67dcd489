"""What the Code screen does with the document of a pane: show another one, compare it, draw it as a graph."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from tui.code_panes import CodePaneModel, read_diff, read_documents
from tui.code_values import CodeValues
from tui.documents import Document
from tui.key_bindings import footer_key, hidden_key
from tui.line_links import LineKey, LineLinks
from tui.location import Location
from tui.pane_labels import EMPTY_PANE, MADE_BY_COMPILING, UNKNOWN_COMPILE
from tui.styled_text import one_line
from tui.views.paned import PanedView

if TYPE_CHECKING:
    from tui.graph_screen import DrawnGraph


class GraphActions(PanedView):
    """A screen with panes, some of which show graphs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("]", "document(1)", "stage", "code.next", "show this pane's next stage, file or module"),
        hidden_key("[", "document(-1)", "previous stage", "code.previous", "show the previous one"),
        footer_key(
            "v", "picture", "picture", "code.picture", "draw the graph around this node, to walk it with the arrows"
        ),
        hidden_key("p", "printed", "as printed", "code.printed", "show graphs as torch printed them, and back"),
        hidden_key(
            "o", "directions", "forward beside backward", "code.directions", "show both graphs, and Dynamo's again"
        ),
        footer_key("d", "diff", "diff", "code.diff", "show the diff between this stage and the previous one"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.values = CodeValues(self)
        self._as_printed = False  # whether graphs are shown as torch printed them

    def show_pane(self, name: str) -> None:
        board, pane = self._model, self.pane(name)
        ref = board.ref(name) if board else None
        if board is None or ref is None:
            pane.show_note(self._empty_text(name, board) if board else self.nothing(""))
            return
        document, links = board.documents.get(ref.key), board.links.get(ref.key, LineLinks())
        if document is None:  # it is being read
            return
        if document.note:
            pane.show_note(document.note)
            return
        if self._as_printed:
            document, links = board.text(name) or (document, links)
        if pane.document is not document:
            pane.show(document, links)
        pane.links = links
        pane.notes = board.notes.get(ref.key, {})
        pane.values = self.values.margins(board, ref, links)
        pane.set_colors(board.colors)

    def _empty_text(self, name: str, board: CodePaneModel) -> str:
        """Why a pane has no document."""
        if name == "stage" and self._stage_message:
            return self._stage_message
        failed = f"compile {one_line(board.compile_id)} {board.failure}" if board.failure else ""
        unknown = UNKNOWN_COMPILE if not board.in_recording else ""
        return unknown or (failed if name in MADE_BY_COMPILING else "") or EMPTY_PANE[name]

    def document_changed(self, name: str, places: frozenset[LineKey]) -> None:
        """Show the selected document, with the cursor on a line linked to the previous cursor line."""
        for each in dict.fromkeys((name, "later", "kernel", "source")):
            self.show_pane(each)
        pane = self.pane(name)
        if lines := pane.linked_lines(places):
            pane.move_to(lines[0])
        self.highlight()
        self.refresh_bindings()

    def action_document(self, by: int) -> None:
        """Show the next or previous document in the current pane."""
        board = self._model
        if board is None or len(board.documents_of[self._current_pane]) < 2:
            later = ": tab goes to the later graphs" if self._current_pane == "dynamo" else ""
            self.notify(f"this pane has no other document{later}")
            return
        at, pane = self._current_pane, self.pane(self._current_pane)
        places = pane.links.keys_of(pane.cursor)
        board.select(at, board.selected[at] + by)
        self.fetch("board", lambda: read_documents(self.session, board), lambda _: self.document_changed(at, places))

    def action_directions(self) -> None:
        """Show the forward graph beside the backward graph, or Dynamo's graph again."""
        board, pane = self._model, self.pane(self._current_pane)
        places = pane.links.keys_of(pane.cursor)
        if board is None or not board.toggle_directions():
            self.notify("this compile has no forward and backward graph")
        else:
            self.fetch("board", lambda: read_documents(self.session, board), lambda _: self._directions_changed(places))

    def _directions_changed(self, places: frozenset[LineKey]) -> None:
        """Show both graphs, with the cursor in the later one, on what is linked to the previous cursor line."""
        self._current_pane = "later"
        self.show_pane("dynamo")
        self.lay_out()
        self.pane("later").focus()
        self.document_changed("later", places)

    def action_printed(self) -> None:
        """Show graphs as torch printed them, or as a person writes them."""
        self._as_printed = not self._as_printed
        for name in ("dynamo", "later"):
            pane = self.pane(name)
            row = pane.document.row_of(pane.cursor) if pane.document else 0
            self.show_pane(name)
            if pane.document is not None:
                pane.move_to(pane.document.line_of(row))
        self.highlight()

    def action_picture(self) -> None:
        """Draw the graph around the node on the cursor's line; in other panes, around the first linked node."""
        from tui.graph_screen import read_graph_picture

        board, name = self._model, self.graph_pane()
        if board is None or name is None or (ref := board.ref(name)) is None:
            self.notify("this compile has no graph", severity="warning")
            return
        line, names = self.graph_line(name), board.links.get(ref.key, LineLinks()).names
        start = names.get(self.pane(name).cursor if line is None else line, "")
        texts = self.values.texts(board, ref)
        self.fetch(
            "picture",
            lambda: read_graph_picture(self.session, ref, start, texts),
            lambda drawn: self._show_picture(drawn, board),
        )

    def _show_picture(self, drawn: DrawnGraph | None, board: CodePaneModel) -> None:
        from tui.graph_screen import GraphScreen

        if drawn is None:
            self.notify("no node of this graph is recognized", severity="warning")
        else:
            compare = partial(self.values.compare_node, board, drawn.ref)
            self.browser.push_screen(GraphScreen(drawn, self.browser.write_new_file, compare), self._picture_left)

    def _picture_left(self, place: Location | None) -> None:
        if place is not None:
            self.browser.go_to(place)

    def action_diff(self) -> None:
        """Show the diff to the previous stage, or the document again."""
        board, at = self._model, self._current_pane
        pane = self.pane(at)
        if board is None or at not in ("dynamo", "later"):
            self.notify("only graphs have diffs: go to the pane of a graph", severity="warning")
        elif pane.document is not None and pane.document.ref.kind == "diff":
            self.show_pane(at)
        else:
            self.fetch("diff", lambda: read_diff(self.session, board, at), lambda found: self._show_diff(found, at))

    def _show_diff(self, found: Document | None, name: str) -> None:
        if found is None:
            self.notify("this is the first stage")
        elif found.note:
            self.notify(found.note, markup=False)
        else:
            self.pane(name).show(found)
            self.highlight()

    def graph_pane(self) -> str | None:
        """The current pane if it shows a graph, or the last one that does.

        Those on the screen come before the others, and those with a line that is linked to the cursor's line before
        those without.
        """
        both = ("dynamo", "later") if self._current_pane == "source" else ("later", "dynamo")
        graphs = [name for name in (self._current_pane, *both) if name in both]
        names = sorted(graphs, key=lambda name: (not self.pane(name).display, self.graph_line(name) is None))
        return next((name for name in names if (it := self.pane(name).document) and it.ref.kind == "graph"), None)

    def graph_line(self, name: str) -> int | None:
        """The line of a graph that the cursor is on, or the first one linked to the cursor's line."""
        pane = self.pane(name)
        if name == self._current_pane:
            return pane.cursor
        return self.first_same_row(name)

    def same_rows(self, name: str) -> tuple[int, ...]:
        """The lines of a pane with the nodes of the cursor's line; none where only its source lines are known."""
        board, at = self._model, self._current_pane
        if board is None or not (self._shows(board, at) and self._shows(board, name)):
            return ()
        return board.same_rows(at, self.pane(at).cursor, name)

    def _shows(self, board: CodePaneModel, name: str) -> bool:
        """Whether a pane shows its document itself: no diff of it, and no graph as torch printed it."""
        ref = board.ref(name)
        return ref is not None and self.pane(name).document is board.documents.get(ref.key)

    def first_same_row(self, name: str) -> int | None:
        """The first line of a pane that computes what is on the cursor's line, or is linked to it."""
        here, pane = self.pane(self._current_pane), self.pane(name)
        if pane.document is None:
            return None
        if rows := self.same_rows(name):
            return rows[0]
        return pane.links.first_operator(here.links.keys_of(here.cursor), pane.document.lines)
