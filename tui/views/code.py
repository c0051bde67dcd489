"""The Code screen: source, graphs and generated code side by side. Lines linked to the cursor's line are lit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from dynadiag.explanation.formatting import list_some
from dynadiag.kernels.compiled_lines import CompiledLines
from dynadiag.kernels.generated_module import GeneratedModule, KernelCall
from dynadiag.render.fusion_text import ranked_refusals, refusal_text, refusal_texts, share_text
from tui.code_panes import (
    NO_COMPILE,
    PANE_TITLES,
    PANES,
    CodePaneModel,
    changes_text,
    compiles_text,
    gone_text,
    lex_ahead,
    made_of,
    read_documents,
    read_panes,
)
from tui.graph_node import NO_NODE, called_lines, node_lines, node_origins, origin_lines
from tui.key_bindings import footer_key, hidden_key
from tui.line_links import LineKey
from tui.location import Location, first_location
from tui.styled_text import Line, one_line
from tui.styled_text import line as styled_line
from tui.views.pane_actions import GraphSpot, PaneActions
from tui.widgets.code_pane import CodePane, is_kernel_line
from tui.widgets.ground import Columns
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines

_MAX_REFUSED = 20  # refused fusions of a call that are listed
_MAX_CALLS = 20  # kernel calls of a line that are listed
_MAX_NAMED = 4  # lines that the status line names


class CodeView(PaneActions):
    """Up to five panes, as many as fit side by side."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key(".", "finding(1)", "finding", "code.finding", "go to the next finding in the source"),
        hidden_key("comma", "finding(-1)", "previous finding", "code.finding-back"),
        footer_key("J", "compile(1)", "compile", "code.next-compile", "next compile, of this line", display="J/K"),
        hidden_key("K", "compile(-1)", "previous compile", "code.previous-compile"),
        footer_key("n", "node(1)", "node", "code.next-node", "go to the node that runs next", display="n/N"),
        hidden_key("N", "node(-1)", "former node", "code.former-node", "go back to the node that ran before"),
        hidden_key(")", "call(1)", "next call", "code.next-call", "show the next recorded call's values"),
        hidden_key("(", "call(-1)", "former call", "code.former-call", "show the former call's values"),
        footer_key("V", "values", "values", "code.values", "show this value uncompiled, in float64 and compiled"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._pending_target: Location | None = None  # where to go once the documents are read
        self._compiled: Mapping[int, tuple[str, ...]] = {}  # the compiles of each line of the source that is shown

    def compose(self) -> ComposeResult:
        with Columns():
            for name in PANES:
                yield CodePane(id=f"pane-{name}")
        yield StyledLines(id="code-node", classes="detail")

    def offers(self, action: str) -> bool:
        """Whether there is what an action is about, and the current pane is one that it does something in."""
        made, has_values = self.model.documents_of, self.model.values is not None
        needed = {
            "document(1)": len(made[self._current_pane]) > 1,
            "diff": made_of(self.model, self._current_pane) is not None,
            "picture": bool(made["dynamo"] or made["later"]),
            "stages": bool(made["kernel"]),
            "finding(1)": bool(self.pane("source").notes),
            "compile(1)": bool(self.model.compile_id) and len(self._compiles_to_choose()) > 1,
            "node(1)": has_values,
            "values": has_values,
        }
        return super().offers(action) and needed.get(action, True)

    # Reading

    def load(self) -> None:
        if not self.model.compile_id:
            self._show_notes("reading ...")
        self._load(self._pending_target or self.location())

    def _show_notes(self, note: str) -> None:
        for pane in self.panes().values():
            pane.show_note(note)

    def _load(self, place: Location) -> None:
        before = self.model if self.model.session is self.session else CodePaneModel()
        self.fetch("board", lambda: self._read(place, before), lambda found: self._show(*found))

    def _read(self, place: Location, before: CodePaneModel) -> tuple[CodePaneModel, Location]:
        """Read the compile of a location. Where it names none, that is the one that failed, with its line."""
        kind, _, file = (place.document or "").partition(":")
        compile_id = place.compile_id
        if compile_id is None and kind == "source":
            compile_id = self.session.compiled_lines().nearest(file, place.line or 0)
        compile_id = compile_id or before.compile_id
        if not compile_id and kind != "source":
            place = first_location(self.session.explanation())
            compile_id = place.compile_id
        compile_id = compile_id or (NO_COMPILE if place.document else "")
        return read_panes(self.session, compile_id, place.document, before) if compile_id else before, place

    def go_to(self, place: Location) -> None:
        board = self.model
        if place.item is not None and place.compile_id == board.compile_id:
            place = self.values.resolved(place)
        self._pending_target = place
        any_has_it = place.compile_id is None and (place.document or "").startswith("source:")
        same = bool(board.compile_id) and place.compile_id in (None, board.compile_id) and not any_has_it
        if same and (place.document is None or self._is_shown(place.document)):
            self._go_to_line(place)
        elif same and place.document in board.links and board.find(place.document):
            self._read_and_show(place)
        elif self.is_mounted:
            self.load()

    def _is_shown(self, key: str) -> bool:
        """Whether a pane shows a document, and nothing beside it changes with it."""
        board = self.model
        before = dict(board.selected), board.forward_graph
        name = board.find(key)
        document = self.pane(name).document if name is not None else None
        is_same = (board.selected, board.forward_graph) == before
        return is_same and document is not None and document.ref.key == key

    def _read_and_show(self, place: Location) -> None:
        """Show a document that has been read. Documents beside it may have to be read first."""
        board = self.model
        if board.is_complete:
            self._show(board, place)
        else:
            self.fetch("board", lambda: read_documents(self.session, board), lambda found: self._show(found, place))

    def show_problem(self, reason: str) -> None:
        if not self.model.compile_id:
            self._show_notes(one_line(reason))
        elif self._stage_message:
            self._show_stage_message(one_line(reason))

    def _show(self, board: CodePaneModel, place: Location) -> None:
        if board is not self.model:
            self._stage_message = ""
        self.model = board
        self.values.board_shown()
        if place.item is not None:
            place = self.values.resolved(place)
            if place.document is not None and board.find(place.document) and not board.is_complete:
                self._read_and_show(place)
                return
        self.refresh_bindings()
        for name in PANES:
            self.show_pane(name)
        if not board.compile_id:
            self.lay_out()
            return
        self._go_to_line(place)
        self.fetch("lexing", lambda: lex_ahead(board), lambda _: None)
        self.fetch("compiled", self.session.compiled_lines, self._show_compiled)

    def _show_compiled(self, lines: CompiledLines) -> None:
        """Take in which compiles made something of each line of the source that is shown."""
        document = self.pane("source").document
        self._compiled = lines.lines_of_file(document.ref.title) if document is not None else {}
        self.pane("source").elsewhere = frozenset(self._compiled)
        self.pane("source").refresh()
        self.highlight()

    def _title(self, name: str) -> str:
        board, document = self.model, self.pane(name).document
        ref = document.ref if document else board.ref(name)
        if ref is None:
            return PANE_TITLES.get(name, name)
        title = ref.title.rpartition("/")[2] if ref.kind == "source" else ref.title
        many = len(board.documents_of[name]) > 1 and ref.kind != "diff" and ref != board.forward_graph
        place = f" ({board.selected[name] + 1} of {len(board.documents_of[name])})" if many else ""
        return f"{one_line(title)}{place}{f', {document.part}' if document and document.part else ''}"

    def _go_to_line(self, place: Location) -> None:
        """Go to a line; without one, to the first line that has links."""
        self._pending_target = None
        found = self.model.find(place.document) if place.document else None
        with_text = (name for name in (self._current_pane, *self.pane_order) if self.pane(name).document is not None)
        name = found or next(with_text, self._current_pane)
        pane = self.pane(name)
        line = place.line if found or not place.document else None
        if line is not None and pane.document is not None:
            pane.move_to(pane.document.line_of(line - 1))
        elif pane.cursor == 0 or not pane.links.keys_of(pane.cursor):
            own = self.model.line if name == "source" and not self.model.selected[name] else None
            if pane.links.keys:
                pane.move_to(self._first_linked(pane))
            elif own:  # the first line from here on that has a finding: of a compile without a graph it says why
                pane.move_to(next((line for line in sorted(pane.notes) if line >= own - 1), own - 1))
        self.go_to_pane(name)

    def _first_linked(self, pane: CodePane) -> int:
        """The line at which compiling failed, the first one that an operator of a shown graph was made of, or any.

        Lines that only called something come last.
        """
        failed = [at for at in sorted(pane.links.keys) if at in pane.notes and pane.notes[at].role == "error"]
        own = [line for line in sorted(pane.links.keys) if not pane.is_calling(line)] or sorted(pane.links.keys)
        graphs = [(each.links, each.document) for each in (self.pane("dynamo"), self.pane("later"))]
        operators = (
            line
            for line in own
            for links, document in graphs
            if document and links.first_operator(pane.links.keys_of(line), document.lines) is not None
        )
        return next(chain(failed, operators), own[0])

    # The location

    def location(self) -> Location:
        board, pane = self.model, self.current_pane
        if not board.compile_id:
            return Location(self.NAME)
        ref = board.ref(self._current_pane)
        line = pane.document.row_of(pane.cursor) + 1 if pane.document else 1
        return Location(self.NAME, board.compile_id, document=ref.key if ref else None, line=line)

    def action_finding(self, way: int) -> None:
        pane = self.pane("source")
        lines = sorted(pane.notes, reverse=way < 0)
        if not lines:
            self.notify("no finding is on a line of this file")
            return
        pane.move_to(next((line for line in lines if line * way > pane.cursor * way), lines[0]))
        self.go_to_pane("source")

    def action_node(self, by: int) -> None:
        self.values.step(by)

    def action_call(self, by: int) -> None:
        self.values.show_call(by)

    def action_values(self) -> None:
        self.values.compare(self.values.here()[0])

    def action_compile(self, by: int) -> None:
        """Go to the next or previous compile: of the cursor's line of source, if it is in several, else of all."""
        ids = self._compiles_to_choose()
        if ids:
            here = ids.index(self.model.compile_id) if self.model.compile_id in ids else 0
            place = self.location() if len(self._compiles_here()) > 1 else Location(self.NAME)
            self.browser.go_to(replace(place, compile_id=ids[(here + by) % len(ids)]))

    def _compiles_to_choose(self) -> Sequence[str]:
        """The compiles that have the cursor's line, if there are several, else all of them."""
        explanation = self.session.known_explanation
        every = [item.compile_id for item in explanation.compiles] if explanation is not None else []
        here = self._compiles_here()
        return here if len(here) > 1 else every

    def _compiles_here(self) -> tuple[str, ...]:
        """The compiles that made something of the cursor's line of source."""
        return self._compiled.get(self.pane("source").cursor, ()) if self._current_pane == "source" else ()

    # Linked lines

    def cursor_moved(self, lines: Lines) -> None:
        if lines.has_focus and lines is not self.node_details:
            self.debounce(self.highlight)

    def highlight(self) -> None:
        """Highlight the lines linked to the cursor's line, and update the titles."""
        here, board = self.current_pane, self.model
        if self._follow(here):
            return
        places = here.links.keys_of(here.cursor)
        for name, pane in self.panes().items():
            above = here.links.callers.get(here.cursor, frozenset()) if name == "source" and pane is not here else ()
            lit = pane.highlight(places, frozenset(above), reveal=pane is not here, only=self.same_rows(name))
            said = pane.status(places, lit, here=pane is here)
            pane.set_title(f"{self._title(name)}{said and f' · {said}'}")
        self._describe(places)
        note = here.notes.get(here.cursor)
        gone = gone_text(board, places) if self._current_pane == "source" else ""
        text = note.text if note is not None else gone or _user_lines_text(here, places)
        ended = f", which {board.failure}" if board.failure else ""
        shown = [f"compile {one_line(board.compile_id)}{ended}"] if board.compile_id not in ("", NO_COMPILE) else []
        shown += [self.values.status(), one_line(changes_text(board, self._current_pane))]
        shown.append(compiles_text(self._compiles_here()))
        self.show_status(" · ".join(filter(None, shown)), text)

    def _follow(self, here: CodePane) -> bool:
        """Show what the cursor's line needs, if it is not on the screen. Return whether it has to be read.

        That is the compile of a source line that this compile has nothing of, and the source file of a node.
        """
        board, keys = self.model, here.links.keys_of(here.cursor)
        if self._current_pane == "source":
            ids = self._compiles_here()
            if not keys and ids and board.compile_id not in ids:
                self._load(Location(self.NAME, ids[0], document=here.document.ref.key if here.document else None))
                return True
            return False
        lines = [place for place in keys if not is_kernel_line(place)]
        if not lines or self.pane("source").links.lines_of(lines):
            return False
        if board.ref("source") is None or board.find(f"source:{min(lines)[0]}") is None:
            return False

        def followed(_: CodePaneModel) -> None:
            self.show_pane("source")
            self.fetch("compiled", self.session.compiled_lines, self._show_compiled)

        self.fetch("board", lambda: read_documents(self.session, board), followed)
        return True

    def _describe(self, places: frozenset[LineKey]) -> None:
        """Show below the panes the graph node under the cursor; in other panes, the first node linked to its line.

        Of a line of source that called something: what that became, by module.
        """
        board, spot = self.model, self.graph_spot()
        stored, called, fusion = list[Line](), list[Line](), list[Line]()
        lines = [styled_line(("no graph is shown", "dim"))]
        if spot is not None:
            if self._current_pane == "source":
                called = called_lines(places, spot.document, spot.links, board)
            if (module := board.module) is not None:
                in_code = self._current_pane == "kernel"
                stored, fusion = self._call_lines(module) if in_code else ([], self._kernels_of(module, places))
            made = [*called, *stored, *fusion]
            if spot.line is not None and not (called and not spot.links.lines_of(places)):
                made = [*called, *stored, *self._node_lines(spot, spot.line, fusion)]
            lines = made or [NO_NODE]
        self.node_details.set_title(f"node of {self._title(spot.pane)}" if spot is not None else "node")
        self.node_details.set_class(bool(called or (fusion and self._current_pane == "kernel")), "tall")
        self.node_details.show(lines)

    def _call_lines(self, module: GeneratedModule) -> tuple[list[Line], list[Line]]:
        """What the kernel call on the cursor's line stores; and what it was not fused with, and why."""
        rows = self.model.node_rows
        here = rows.call_on(self.pane("kernel").cursor) if rows is not None else None
        if here is None:
            return [], []
        share = [styled_line((share, "dim"))] if (share := share_text(module.calls)) else []
        return self.values.stored_lines(here.name), [*share, *_fusion_lines(module, here)]

    def _node_lines(self, spot: GraphSpot, line: int, fusion: Sequence[Line]) -> list[Line]:
        board, document = self.model, spot.document
        printed, links = board.printed.get(document.ref.key, (document, spot.links))
        nodes, row = board.nodes(document.ref.key), document.row_of(line)
        found = nodes.on_row(row, printed.lines) if nodes is not None else None
        if found is None:
            return [NO_NODE]
        origins = node_origins(links.names.get(row, found.name), document, board)
        head, *rest = node_lines(found, document, board.compile_id)
        made = origin_lines(origins, board.callers, board.compile_id)
        return [head, *made[:1], *self.values.lines(), *fusion, *rest, *made[1:]]

    def _kernels_of(self, module: GeneratedModule, places: frozenset[LineKey]) -> list[Line]:
        """The kernel calls that compute source lines, each with why it is not fused with others."""
        links, same = self.pane("kernel").links, frozenset(self.same_rows("kernel"))
        own = [call for call in module.calls if call.line - 1 in same]
        calls = own or [call for call in module.calls if links.keys_of(call.line - 1) & places]
        made = []
        for number, call in enumerate(calls[:_MAX_CALLS], 1):
            of = f"{number} of {len(calls)}" if len(calls) > 1 else "kernel"
            to = Location(self.NAME, call.compile_id, document=f"event:{call.event}", line=call.line)
            why = _fusion_lines(module, call)
            library = [(f"  {line.text}", "dim") for line in why] if call.definition is None else []
            origins = (self.model.origins.get(name) for name in call.dynamo_nodes if len(calls) > 1)
            modules = list(dict.fromkeys(each.modules[-1] for each in origins if each and each.modules))
            whose = [(f"  of {one_line(list_some(modules, 2))}", "dim")] if modules else []
            made.append(styled_line((f"{of:<6} ", "dim"), (one_line(call.name), "key"), *whose, *library, to=to))
            made += [Line((("       ", ""), *line.fragments), line.target) for line in why if not library]
        return made

    def line_chosen(self, lines: Lines) -> None:
        """Go to the first linked line in the next pane that has one."""
        if lines is self.node_details:
            self.browser.go_to(self.node_details.target)
            return
        order = self.pane_order
        here = order.index(self._current_pane)
        for name in (*order[here + 1 :], *order[:here]):
            ref, pane, found = self.model.ref(name), self.pane(name), self.first_same_row(name)
            if found is not None and ref is not None:
                line = pane.document.row_of(found) + 1 if pane.document else found + 1
                self.browser.go_to(Location(self.NAME, self.model.compile_id, document=ref.key, line=line))
                return
        self.notify("no mapping: no line of the other panes is linked to this line", severity="warning")


def _user_lines_text(pane: CodePane, places: frozenset[LineKey]) -> str:
    """Return the source lines that the cursor's line is linked to."""
    own = sorted(place for place in places if not is_kernel_line(place))
    named = ", ".join(f"{one_line(file.rpartition('/')[2])}:{line}" for file, line in own[:_MAX_NAMED])
    return named if places or not pane.count else "no mapping for this line"


def _fusion_lines(module: GeneratedModule, call: KernelCall) -> list[Line]:
    """Why a call is not fused with others, each with where the other one is called."""
    if call.definition is None:
        return [styled_line(text) for text in refusal_texts(call)]
    lines = {other.index: other.line for other in module.calls}
    made = []
    for refused in ranked_refusals(call)[:_MAX_REFUSED]:
        line = lines.get(refused.call)
        to = Location("code", call.compile_id, document=f"event:{module.event}", line=line)
        made.append(styled_line(one_line(refusal_text(refused, line)), to=to))
    return made
