"""Asking before something of the user's is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tui.roles import Line
from tui.widgets.styled import StyledLines

__all__ = ["Confirm"]


class Confirm(ModalScreen[bool]):
    """Shows what would be done; y or enter does it, anything else does not."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "do it", priority=True, id="confirm.yes"),
        Binding("escape,q,n", "answer(False)", "leave it", priority=True, id="confirm.no"),
    ]

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield StyledLines(self._lines)

    def on_mount(self) -> None:
        box = self.query_one(StyledLines)
        box.border_title = "run this?"
        box.border_subtitle = "y runs it, escape does not"

    def on_lines_chosen(self, message: StyledLines.Chosen) -> None:
        message.stop()
        self.dismiss(True)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
