"""What the Code screen does with the document of a pane: show another one, compare or draw it, compile its kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.stages import is_in_own_cache
from dynadiag.render.dataflow.boxes import DrawableGraph
from tui.code_panes import EMPTY_PANE, MADE_BY_COMPILING, UNKNOWN_COMPILE, read_diff, read_documents, set_stages
from tui.code_values import CodeValues
from tui.dialog import Choice, Confirm
from tui.documents import Document
from tui.kernel_stages import CompiledKernel, compile_kernel, kernel_call_at
from tui.key_bindings import footer_key, hidden_key
from tui.line_links import LineKey, LineLinks
from tui.styled_text import Line, line, one_line
from tui.views.paned import PanedView


@dataclass(frozen=True, slots=True)
class GraphSpot:
    """A graph that a pane shows, and the line of it that the cursor is on or that is linked to the cursor's line."""

    pane: str
    document: Document
    links: LineLinks
    line: int | None


class PaneActions(PanedView):
    """A screen with panes, some of which show graphs, others generated code."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("]", "document(1)", "stage", "code.next", "show this pane's next stage, file or module"),
        hidden_key("[", "document(-1)", "previous stage", "code.previous", "show the previous one"),
        footer_key("v", "picture", "picture", "code.picture", "draw the graph around this node; arrows walk it"),
        hidden_key("p", "printed", "as printed", "code.printed", "show graphs as torch printed them, and back"),
        hidden_key("o", "directions", "forward beside backward", "code.directions", "show both graphs, and back"),
        footer_key("d", "diff", "diff", "code.diff", "show the diff between this stage and the previous one"),
        footer_key(
            "a", "stages", "assembly", "code.stages", "compile this line's kernel: show its IR and machine code"
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.values = CodeValues(self)
        self._as_printed = False  # whether graphs are shown as torch printed them
        self._compiling: Path | None = None  # the recording of the kernel that is compiled

    def show_pane(self, name: str) -> None:
        """Show the selected document of a pane, or why there is none."""
        board, pane, ref = self.model, self.pane(name), self.model.ref(name)
        if ref is None:
            pane.show_note(self._empty_text(name) if board.compile_id else self.nothing(""))
            return
        document, links = board.documents.get(ref.key), board.links.get(ref.key, LineLinks())
        if document is None:  # it is being read
            return
        if document.note:
            pane.show_note(document.note)
            return
        if self._as_printed:
            document, links = board.printed.get(ref.key, (document, links))
        if pane.document is not document:
            pane.show(document, links)
        pane.links = links
        pane.notes = board.notes.get(ref.key, {})
        pane.values = self.values.margins(ref, links)
        pane.line_colors = board.colors
        pane.refresh()

    def _empty_text(self, name: str) -> str:
        board = self.model
        if name == "stage" and self._stage_message:
            return self._stage_message
        if not board.in_recording:
            return self.nothing(UNKNOWN_COMPILE)
        failed = board.failure and name in MADE_BY_COMPILING
        return f"compile {one_line(board.compile_id)} {board.failure}" if failed else EMPTY_PANE[name]

    def linked_here(self) -> frozenset[LineKey]:
        """The source lines that the cursor's line is linked to."""
        pane = self.current_pane
        return pane.links.keys_of(pane.cursor)

    def _read_selected(self, name: str) -> None:
        """Read what was selected, then show it with the cursor on a line linked to the line that it is on now."""
        board, places = self.model, self.linked_here()

        def read(_: object) -> None:
            for each in dict.fromkeys((name, "dynamo", "later", "kernel", "source")):
                self.show_pane(each)
            if lines := self.pane(name).linked_lines(places):
                self.pane(name).move_to(lines[0])
            self.go_to_pane(name)
            self.refresh_bindings()

        self.fetch("board", lambda: read_documents(self.session, board), read)

    def action_document(self, by: int) -> None:
        board, at = self.model, self._current_pane
        if len(board.documents_of[at]) < 2:
            later = ": tab goes to the later graphs" if at == "dynamo" else ""
            self.notify(f"this pane has no other document{later}")
        else:
            board.select(at, board.selected[at] + by)
            self._read_selected(at)

    def action_directions(self) -> None:
        if self.model.toggle_directions():
            self._read_selected("later")
        else:
            self.notify("this compile has no forward and backward graph")

    def action_printed(self) -> None:
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
        from tui.graph_screen import GraphScreen

        board, spot = self.model, self.graph_spot()
        ref = spot.document.ref if spot is not None else None
        nodes = board.nodes(ref.key) if ref is not None else None
        if spot is None or ref is None or nodes is None:
            self.notify("this compile has no graph", severity="warning")
            return
        graph, line = nodes.graph, self.pane(spot.pane).cursor if spot.line is None else spot.line
        if not graph.nodes:
            self.notify("no node of this graph is recognized", severity="warning")
            return
        here = spot.links.names.get(line, "")
        start = here if here in graph.nodes else next(iter(graph.nodes))
        modules = {name: origin.modules for name, origin in board.origins.items()} if ref.stage == "dynamo" else {}
        texts = self.values.texts(ref)

        def compare(name: str) -> None:
            self.values.compare(self.values.of_node(ref, name)[0])

        def show(flow: DrawableGraph) -> None:
            legend = self.values.legend() if texts else ""
            screen = GraphScreen(ref, flow, start, legend, self.browser.write_new_file, compare)
            self.browser.push_screen(screen, self.browser.go_to)

        self.fetch("picture", lambda: DrawableGraph(graph, modules, texts), show)

    def action_diff(self) -> None:
        board, at = self.model, self._current_pane
        pane = self.pane(at)
        if at not in ("dynamo", "later"):
            self.notify("only graphs have diffs: go to the pane of a graph", severity="warning")
        elif pane.document is not None and pane.document.ref.kind == "diff":
            self.show_pane(at)
        else:
            self.fetch("diff", lambda: read_diff(self.session, board, at), lambda found: self._show_diff(found, at))

    def _show_diff(self, found: Document | None, name: str) -> None:
        if found is None or found.note:
            self.notify("this is the first stage" if found is None else found.note, markup=False)
        else:
            self.pane(name).show(found)
            self.highlight()

    # The cursor's line in other panes

    def graph_spot(self) -> GraphSpot | None:
        """Where the cursor is in the current pane, if that shows a graph, or in the last one that does.

        Those on the screen come before the others, and those with a line that is linked to the cursor's line before
        those without.
        """
        both = ("dynamo", "later") if self._current_pane == "source" else ("later", "dynamo")
        found = []
        for name in [each for each in (self._current_pane, *both) if each in both]:
            pane = self.pane(name)
            if pane.document is not None and pane.document.ref.kind == "graph":
                line = pane.cursor if name == self._current_pane else self.first_same_row(name)
                found.append(GraphSpot(name, pane.document, pane.links, line))
        return min(found, key=lambda each: (not self.pane(each.pane).display, each.line is None), default=None)

    def same_rows(self, name: str) -> tuple[int, ...]:
        """The lines of a pane with the nodes of the cursor's line; none where only its source lines are known."""
        at = self._current_pane
        is_shown = self._shows_itself(at) and self._shows_itself(name)
        return self.model.same_rows(at, self.pane(at).cursor, name) if is_shown else ()

    def _shows_itself(self, name: str) -> bool:
        """Whether a pane shows its document itself: no diff of it, and no graph as torch printed it."""
        ref = self.model.ref(name)
        return ref is not None and self.pane(name).document is self.model.documents.get(ref.key)

    def first_same_row(self, name: str) -> int | None:
        """The first line of a pane that computes what is on the cursor's line, or is linked to it."""
        pane = self.pane(name)
        if pane.document is None:
            return None
        if rows := self.same_rows(name):
            return rows[0]
        return pane.links.first_operator(self.linked_here(), pane.document.lines)

    # The stages of a kernel

    def action_stages(self) -> None:
        """Compile the kernel of the cursor's line and show its IR and machine code."""
        board, pane = self.model, self.pane("kernel")
        ref = board.ref("kernel")
        line = pane.cursor if self._current_pane == "kernel" else self.first_same_row("kernel")
        if ref is None or pane.document is None or line is None:
            self.notify("no kernel of the generated code belongs to this line", severity="warning")
            return
        key, at = ref.key, line

        def find() -> tuple[KernelCall, bool] | None:
            call = kernel_call_at(self.session, board.compile_id, key, at)
            return (call, not is_in_own_cache(self.session.recording, call)) if call is not None else None

        self.fetch("call", find, lambda found: self._confirm(found, at))

    def _confirm(self, found: tuple[KernelCall, bool] | None, at: int) -> None:
        if found is None:
            self.notify("this line has no generated kernel", severity="warning")
            return
        call, ask = found
        if not ask:
            self._compile(call, at)
            return
        lines = [
            line((f"compile {one_line(call.name)}", "strong")),
            Line(),
            line("Its source is from the recording, and compiling it runs code."),
            line("Continue only if you trust whoever made the recording."),
        ]
        self.app.push_screen(Confirm(Choice(True, lines)), lambda yes: self._compile(call, at) if yes else None)

    def _compile(self, call: KernelCall, at: int) -> None:
        others = self._kernels_here() - {call.name}
        pane = self.pane("kernel")
        pane.move_to(at)
        self._current_pane, self._compiling = "kernel", self.session.path
        self._show_stage_message(f"compiling {one_line(call.name)} ...")
        pane.focus()
        if others:
            said = f"{one_line(call.name)} is one of {len(others) + 1} kernels of this line; tab goes to the others"
            self.notify(said, markup=False)
        self.fetch("stages", lambda: compile_kernel(self.session, call), self._show_stages)

    def _kernels_here(self) -> set[str]:
        """The names of the kernels that compute what is on the cursor's line of source or of a graph."""
        module = self.model.module
        if module is None or self._current_pane == "kernel":
            return set()
        made = set(self.same_rows("kernel") or self.pane("kernel").links.made_of(self.linked_here()))
        return {call.name for call in module.calls if call.definition is not None and call.line - 1 in made}

    def _show_stage_message(self, words: str) -> None:
        self._stage_message = words
        self.pane("stage").show_note(words)
        self.beside = "stage"
        self.lay_out()

    def _show_stages(self, made: CompiledKernel) -> None:
        board = self.model
        if made.call.compile_id != board.compile_id or self._compiling != self.session.path:
            return
        if made.module not in board.links:  # the recording was read again meanwhile, at another module
            if board.find(made.module) is not None:
                self.fetch("board", lambda: read_documents(self.session, board), lambda _: self._show_stages(made))
            return
        set_stages(board, made)
        self._stage_message = ""
        self.show_pane("stage")
        self.show_pane("kernel")
        self.beside = "stage"
        self.lay_out()
        self.highlight()
        for note in made.stages.notes:
            self.notify(one_line(note), markup=False)
