"""Compiles a kernel to its stages. Asks the user first if that would run code of a stranger."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from dynadiag.kernels import KernelCall
from tui.confirm import Confirm, Way
from tui.roles import Line, line, one_line
from tui.stages import Made, call_at, made_of, needs_consent
from tui.views.base import View

__all__ = ["MakesStages"]


class MakesStages(View):
    """A screen on which the cursor can be on a kernel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "a",
            "stages",
            "assembly",
            id="code.stages",
            tooltip="compile the kernel under the cursor and show its IR and machine code",
        )
    ]

    def kernel_line(self) -> tuple[str, str, int] | None:
        """Return compile id, module key and line (from 0) if the cursor is in generated code."""
        raise NotImplementedError

    def begin_stages(self, call: KernelCall) -> None:
        """Show that a kernel is being compiled."""
        raise NotImplementedError

    def take_stages(self, made: Made) -> None:
        """Show the stages."""
        raise NotImplementedError

    def action_stages(self) -> None:
        """Compile the kernel under the cursor and show its IR and machine code."""
        here = self.kernel_line()
        if here is None:
            self.notify("go to a kernel in the generated code first", severity="warning")
        else:
            self.fetch("call", lambda: self._kernel_at(*here), self._ask)

    def _kernel_at(self, compile_id: str, module: str, line: int) -> tuple[KernelCall, bool] | None:
        call = call_at(self.session, compile_id, module, line)
        return (call, needs_consent(self.session, call)) if call is not None else None

    def _ask(self, found: tuple[KernelCall, bool] | None) -> None:
        if found is None:
            self.notify("this line has no generated kernel", severity="warning")
            return
        call, ask = found
        if not ask:
            self._make(call)
            return
        lines = [
            line((f"compile {one_line(call.name)}", "strong")),
            Line(),
            line("Its source is from the recording, and compiling it runs code."),
            line("Continue only if you trust whoever made the recording."),
        ]
        self.app.push_screen(Confirm(Way(True, lines)), lambda yes: self._make(call) if yes else None)

    def _make(self, call: KernelCall) -> None:
        self.begin_stages(call)
        self.fetch("stages", lambda: made_of(self.session, call), self.take_stages)
