"""What a screen does with the kernel on the cursor's line: compile it, and show its IR and machine code."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from dynadiag.kernels.generated_module import KernelCall
from tui.confirm import Choice, Confirm
from tui.kernel_stages import CompiledKernel, compile_kernel, kernel_call_at, needs_consent
from tui.styled_text import Line, line, one_line
from tui.views.base import View


class StageActions(View):
    """A screen on which the cursor can be on a kernel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "a",
            "stages",
            "assembly",
            id="code.stages",
            tooltip="compile the kernel of this line and show its IR and machine code",
        )
    ]

    def kernel_under_cursor(self) -> tuple[str, str, int] | None:
        """Return compile id, module key and line (from 0) of the kernel that belongs to the cursor's line."""
        raise NotImplementedError

    def stages_started(self, call: KernelCall, line: int) -> None:
        """Go to a line of a kernel, and show that the kernel is being compiled."""
        raise NotImplementedError

    def show_stages(self, made: CompiledKernel) -> None:
        """Show the stages."""
        raise NotImplementedError

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
        self.stages_started(call, at)
        self.fetch("stages", lambda: compile_kernel(self.session, call), self.show_stages)
