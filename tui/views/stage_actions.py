"""What a screen does with the kernel on the cursor's line: compile it, and show its IR and machine code."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from dynadiag.kernels.generated_module import KernelCall
from tui.code_panes import read_documents, set_stages
from tui.dialog import Choice, Confirm
from tui.kernel_stages import CompiledKernel, compile_kernel, kernel_call_at, needs_consent
from tui.key_bindings import footer_key
from tui.styled_text import Line, line, one_line
from tui.views.graph_actions import GraphActions


class StageActions(GraphActions):
    """A screen on whose panes the cursor can be on a kernel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("a", "stages", "assembly", "code.stages", "compile this line's kernel: show its IR and machine code")
    ]

    def __init__(self) -> None:
        super().__init__()
        self._compiling: Path | None = None  # the recording of the kernel that is compiled

    def action_stages(self) -> None:
        """Compile the kernel of the cursor's line and show its IR and machine code."""
        here = self.kernel_under_cursor()
        if here is None:
            self.notify("no kernel of the generated code belongs to this line", severity="warning")
        else:
            self.fetch("call", lambda: self._kernel_at(*here), lambda found: self._confirm(found, here[2]))

    def _kernel_at(self, compile_id: str, module: str, line: int) -> tuple[KernelCall, bool] | None:
        call = kernel_call_at(self.session, compile_id, module, line)
        return (call, needs_consent(self.session, call)) if call is not None else None

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
        self.stages_started(call, at)
        if others:
            said = f"{one_line(call.name)} is one of {len(others) + 1} kernels of this line; tab goes to the others"
            self.notify(said, markup=False)
        self.fetch("stages", lambda: compile_kernel(self.session, call), self.show_stages)

    def kernel_under_cursor(self) -> tuple[str, str, int] | None:
        """The kernel on the cursor's line; from another pane, the first one that computes what is on its line."""
        board, pane = self._model, self.pane("kernel")
        ref = board.ref("kernel") if board else None
        if board is None or ref is None or pane.document is None:
            return None
        line: int | None = pane.cursor
        if self._current_pane != "kernel":
            line = self.first_same_row("kernel")
        return (board.compile_id, ref.key, line) if line is not None else None

    def _kernels_here(self) -> set[str]:
        """The names of the kernels that compute what is on the cursor's line of source or of a graph."""
        board, here, links = self._model, self.pane(self._current_pane), self.pane("kernel").links
        module = board.module if board is not None else None
        if module is None or self._current_pane == "kernel":
            return set()
        made = set(self.same_rows("kernel") or links.made_of(here.links.keys_of(here.cursor)))
        return {call.name for call in module.calls if call.definition is not None and call.line - 1 in made}

    def stages_started(self, call: KernelCall, line: int) -> None:
        pane = self.pane("kernel")
        pane.move_to(line)
        self._current_pane, self._compiling = "kernel", self.session.path
        self._show_stage_message(f"compiling {one_line(call.name)} ...")
        pane.focus()

    def _show_stage_message(self, words: str) -> None:
        self._stage_message = words
        self.pane("stage").show_note(words)
        self.beside = "stage"
        self.lay_out()

    def show_stages(self, made: CompiledKernel) -> None:
        board = self._model
        if board is None or made.call.compile_id != board.compile_id or self._compiling != self.session.path:
            return
        if made.module not in board.links:  # the recording was read again meanwhile, at another module
            if board.find(made.module) is not None:
                self.fetch("board", lambda: read_documents(self.session, board), lambda _: self.show_stages(made))
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
