"""A line of input at the bottom of the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.widgets import Input
from tui.key_bindings import hidden_key


class Prompt(Horizontal):
    """Hidden until `ask` is called. Enter answers, escape cancels."""

    DEFAULT_CSS = """
    Prompt { display: none; height: 1; background: $boost; }
    Prompt.open { display: block; }
    Prompt > Static { width: auto; height: 1; text-style: bold; }
    Prompt > #prompt-note { padding: 0 1; text-style: none; color: $text-muted; }
    Prompt > Input { width: 1fr; height: 1; border: none; padding: 0; background: $boost; }
    Prompt > Input:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [hidden_key("escape", "leave", "cancel", "prompt.leave")]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._answer: Callable[[str], None] | None = None
        self._preview: Callable[[str], str] | None = None
        self._cancel: Callable[[], None] | None = None
        self._mounting = asyncio.Lock()
        self._previous_focus: Widget | None = None

    async def ask(
        self,
        label: str,
        value: str,
        answer: Callable[[str], None],
        *,
        preview: Callable[[str], str] | None = None,
        cancel: Callable[[], None] | None = None,
    ) -> None:
        """Ask for a text, and call `answer` with it.

        ``preview`` is called with the text after each key and returns what stands beside it; ``cancel`` is called if
        the user leaves without an answer. Where the prompt's dialog is closed, nothing is asked.
        """
        self._answer, self._previous_focus = answer, self.app.focused
        self._preview, self._cancel = preview, cancel
        from textual.widgets import Input  # imported late: the first screen does not need it

        async with self._mounting:  # another key may ask while the first one waits here
            if not self.children:
                before, after = (Static(markup=False, id=f"prompt-{name}") for name in ("label", "note"))
                await self.mount(before, Input(compact=True), after)
        if not self.children:  # its dialog was closed meanwhile
            return
        self.query_one("#prompt-label", Static).update(label)
        self.query_one("#prompt-note", Static).update("")
        field = self.query_one(Input)
        field.value = value
        self.add_class("open")
        field.focus()
        field.action_select_all()

    def on_input_changed(self, message: Input.Changed) -> None:
        message.stop()
        if self._preview is not None and self.has_class("open"):
            self.query_one("#prompt-note", Static).update(self._preview(message.value))

    def on_input_submitted(self, message: Input.Submitted) -> None:
        message.stop()
        answer = self._answer
        self._close()
        if answer is not None:
            answer(message.value)

    def action_leave(self) -> None:
        cancel = self._cancel
        self._close()
        if cancel is not None:
            cancel()

    def _close(self) -> None:
        self.remove_class("open")
        self._answer = self._preview = self._cancel = None
        if self._previous_focus is not None:
            self._previous_focus.focus()
