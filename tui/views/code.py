"""The Code screen: source, graphs and generated code side by side. Lines linked to the cursor's line are lit."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from dynadiag.kernels import KernelCall
from tui.documents import Document
from tui.linking import PANES, Board, board_of, diff_of, fill, take_stages
from tui.links import Links, Place
from tui.location import Location
from tui.nodes import node_at
from tui.nodeview import node_lines
from tui.panewords import EMPTY, TITLES, UNKNOWN, said_of, where_of
from tui.roles import one_line
from tui.stages import Made
from tui.views.paned import PanedView
from tui.views.stages import MakesStages
from tui.widgets.code import CodePane
from tui.widgets.lines import Lines
from tui.widgets.styled import StyledLines

__all__ = ["CodeView"]


class CodeView(PanedView, MakesStages):
    """Up to five panes, as many as fit side by side."""

    NAME: ClassVar[str] = "code"
    TITLE: ClassVar[str] = "Code"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right_square_bracket",
            "document(1)",
            "stage",
            key_display="]",
            id="code.next",
            tooltip="show the next stage, file or module in this pane",
        ),
        Binding(
            "left_square_bracket",
            "document(-1)",
            "previous stage",
            show=False,
            key_display="[",
            id="code.previous",
            tooltip="show the previous one",
        ),
        Binding("d", "diff", "diff", id="code.diff", tooltip="show the diff between this stage and the previous one"),
        Binding("J", "compile(1)", "next compile", show=False, id="code.next-compile"),
        Binding("K", "compile(-1)", "previous compile", show=False, id="code.previous-compile"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._board: Board | None = None
        self._place: Location | None = None  # where to go once the documents are read
        self._making = ""  # shown instead of a kernel's stages: progress or an error

    def compose(self) -> ComposeResult:
        with Horizontal():
            for name in PANES:
                yield CodePane(id=f"pane-{name}")
        yield StyledLines(id="code-node", classes="detail")

    # Reading

    def load(self) -> None:
        if self._board is None:
            for pane in self.panes().values():
                pane.say("reading ...")
        place = self._place or (self.place() if self._board else Location(self.NAME))
        self.fetch("board", lambda: self._read(place), lambda board: self._show(board, place))

    def _read(self, place: Location) -> Board | None:
        compile_id = place.compile_id or (self._board.compile_id if self._board else None)
        if compile_id is None:
            explanation = self.session.explanation()
            ids = [item.compile_id for item in (explanation.graphs[:1] or explanation.compiles[:1])]
            if not ids:
                return None
            compile_id = ids[0]  # a compile that has a graph
        return board_of(self.session, compile_id, place.document)

    def open(self, place: Location) -> None:
        board = self._board
        self._place = place
        same = board is not None and place.compile_id in (None, board.compile_id)
        if same and board is not None and place.document is None:
            self._arrive(board, place)
        elif same and board is not None and place.document in board.links and board.find(place.document):
            self._read_and_show(board, place)
        elif self.is_mounted:
            self.load()

    def _read_and_show(self, board: Board, place: Location) -> None:
        """Show a document that has been read. Documents beside it may have to be read first."""
        if board.is_filled:
            self._show(board, place)
        else:
            self.fetch("board", lambda: fill(self.session, board), lambda found: self._show(found, place))

    def show_problem(self, reason: str) -> None:
        if self._board is None:
            for pane in self.panes().values():
                pane.say(one_line(reason))
        elif self._making:
            self._say_stage(one_line(reason))

    def _show(self, board: Board | None, place: Location) -> None:
        if board is not self._board:
            self._making = ""
        self._board = board
        for name in PANES:
            self._fill(name)
        if board is not None:
            self._arrive(board, place)

    def _fill(self, name: str) -> None:
        board, pane = self._board, self.pane(name)
        ref = board.ref(name) if board else None
        if board is None or ref is None:
            words = EMPTY[name] if board and board.recorded else UNKNOWN
            said = self._making if name == "stage" else ""
            pane.say(said or words if board else "nothing was compiled")
            return
        document, links = board.documents[ref.key], board.links.get(ref.key, Links())
        if pane.document is not document:
            pane.show(document, links)
        pane.links = links
        pane.colour(board.colours)

    def _title(self, name: str) -> str:
        board, document = self._board, self.pane(name).document
        if board is None or document is None:
            return TITLES.get(name, name)
        ref = document.ref
        title = ref.title.rpartition("/")[2] if ref.kind == "source" else ref.title
        many = len(board.refs[name]) > 1 and ref.kind != "diff"
        place = f" {board.index[name] + 1}/{len(board.refs[name])}" if many else ""
        return f"{one_line(title)}{place}"

    def _arrive(self, board: Board, place: Location) -> None:
        """Go to a line; without one, to the first line that has links."""
        self._place = None
        name = (board.find(place.document) if place.document else None) or self._at
        pane = self.pane(name)
        line = place.line
        if line is None and pane.cursor == 0:
            own = board.line if name == "source" and not board.index[name] else None
            line = min(pane.links.places) + 1 if pane.links.places else own
        if line is not None:
            pane.go(line - 1)
        self._at = name
        self.lay_out()
        if self.browser.current is self:
            pane.focus()
        self.light()

    # The location

    def place(self) -> Location:
        board = self._board
        if board is None:
            return Location(self.NAME)
        ref = board.ref(self._at)
        return Location(
            self.NAME, board.compile_id, document=ref.key if ref else None, line=self.pane(self._at).cursor + 1
        )

    # Panes

    @property
    def order(self) -> tuple[str, ...]:
        """The panes from left to right. The stage pane is added once a kernel is compiled."""
        return PANES if self._making or (self._board and self._board.refs["stage"]) else PANES[:-1]

    def action_document(self, by: int) -> None:
        """Show the next or previous document in the current pane."""
        board = self._board
        if board is None or len(board.refs[self._at]) < 2:
            self.notify("this pane has no other document")
            return
        at, pane = self._at, self.pane(self._at)
        places = pane.links.of(pane.cursor)
        board.turn(at, board.index[at] + by)
        self.fetch("board", lambda: fill(self.session, board), lambda _: self._changed(at, places))

    def _changed(self, name: str, places: frozenset[Place]) -> None:
        """Show the selected document, with the cursor on a line linked to the previous cursor line."""
        for each in dict.fromkeys((name, "later", "kernel", "source")):
            self._fill(each)
        pane = self.pane(name)
        if lines := pane.belonging(places):
            pane.go(lines[0])
        self.light()

    def action_diff(self) -> None:
        """Show the diff to the previous stage, or the document again."""
        board, at = self._board, self._at
        pane = self.pane(at)
        if board is None or at not in ("dynamo", "later"):
            self.notify("only graphs have diffs: go to the pane of a graph", severity="warning")
        elif pane.document is not None and pane.document.ref.kind == "diff":
            self._fill(at)
        else:
            self.fetch("diff", lambda: diff_of(self.session, board, at), lambda found: self._show_diff(found, at))

    def _show_diff(self, found: Document | None, name: str) -> None:
        if found is None:
            self.notify("this is the first stage")
        elif found.note:
            self.notify(found.note, markup=False)
        else:
            self.pane(name).show(found)
            self.light()

    def kernel_line(self) -> tuple[str, str, int] | None:
        board = self._board
        ref = board.ref("kernel") if board else None
        if board is None or ref is None or self._at != "kernel":
            return None
        return board.compile_id, ref.key, self.pane("kernel").cursor

    def begin_stages(self, call: KernelCall) -> None:
        self._say_stage(f"compiling {one_line(call.name)} ...")

    def _say_stage(self, words: str) -> None:
        self._making = words
        self.pane("stage").say(words)
        self._lay_out_with_stage()

    def _lay_out_with_stage(self) -> None:
        """Show the stage pane beside the current pane."""
        at, self._at = self._at, "stage"
        self.lay_out()
        self._at = at

    def take_stages(self, made: Made) -> None:
        board = self._board
        if board is None or made.call.compile_id != board.compile_id:
            return
        take_stages(board, made)
        self._making = ""
        self._fill("stage")
        self._fill("kernel")
        self._lay_out_with_stage()
        self.light()
        for note in made.stages.notes:
            self.notify(one_line(note), markup=False)

    def action_compile(self, by: int) -> None:
        """Go to the next or previous compile."""
        ids = [item.compile_id for item in self.session.explanation().compiles]
        if ids:
            here = ids.index(self._board.compile_id) if self._board and self._board.compile_id in ids else 0
            self.browser.goto(Location(self.NAME, ids[(here + by) % len(ids)]))

    # Linked lines

    def moved(self, lines: Lines) -> None:
        if lines.has_focus and lines is not self.facts:
            self.rest(self.light)

    def light(self) -> None:
        """Highlight the lines linked to the cursor's line, and update the titles."""
        here = self.pane(self._at)
        places = here.links.of(here.cursor)
        for name in PANES:
            pane = self.pane(name)
            lit = pane.light(places, reveal=pane is not here)
            said = said_of(pane, places, lit, here=pane is here)
            pane.border_title = f"{self._title(name)}{said and f' · {said}'}"
        self._describe(here)
        board = self._board
        self.browser.say(f"compile {one_line(board.compile_id)}" if board else "", where_of(here, places))

    def _describe(self, pane: CodePane) -> None:
        """Show the graph node under the cursor below the panes."""
        document = pane.document
        graph = document is not None and document.ref.kind == "graph" and pane.count > 0
        if document is None or not graph:
            self.facts.display = self.facts.has_focus
            return
        self.facts.display = True
        found = node_at(document.lines, pane.links.defined, pane.cursor)
        compile_id = self._board.compile_id if self._board else None
        self.facts.show(node_lines(found, document.ref.key, compile_id))

    def chosen(self, lines: Lines) -> None:
        """Go to the first linked line in the next pane that has one."""
        if lines is self.facts:
            target = self.facts.lines[lines.cursor].target
            if target is not None:
                self.browser.goto(target)
            return
        order = self.order
        here = order.index(self._at)
        places = self.pane(self._at).links.of(lines.cursor)
        for step in range(1, len(order)):
            name = order[(here + step) % len(order)]
            ref = self._board.ref(name) if self._board else None
            found = self.pane(name).links.at(places)
            if found and ref is not None and self._board is not None:
                self.browser.goto(Location(self.NAME, self._board.compile_id, document=ref.key, line=found[0] + 1))
                return
        self.notify("no mapping: no line of the other panes is linked to this line", severity="warning")
