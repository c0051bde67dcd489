"""A dialog that asks the user before a program or a compiler runs, or before something is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.dialog import Dialog
from tui.styled_text import Line, line
from tui.widgets.styled_lines import StyledLines

if TYPE_CHECKING:
    from tui.command_process import Command


RUNS_OFTEN = "This runs the program of the recording many times, with all its side effects."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """One way to run it: the lines that the dialog shows, and the value that it returns."""

    answer: T
    lines: Sequence[Line]


def command_choice(command: Command, *told: str) -> Choice[Command]:
    """The choice to run a command: the command, its folder, and what the user has to know before."""
    head = (line((f"$ {command.text}", "strong")), line((f"in {command.folder}", "dim")), Line())
    return Choice(command, [*head, *map(line, told)])


class Confirm(Dialog["T | None"], Generic[T]):
    """Shows what would run. `y` or enter confirms, `a` shows the next choice, any other key cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "run it", priority=True, id="confirm.yes"),
        Binding("a", "other", "other choice", priority=True, id="confirm.other"),
        Binding("escape,q,n", "answer(False)", "cancel", priority=True, id="confirm.no"),
    ]

    def __init__(self, *ways: Choice[T], title: str = "run this?", verb: str = "runs it") -> None:
        """``verb`` says what `y` does."""
        super().__init__()
        self._title, self._verb = title, verb
        self._choices = ways
        self._index = 0

    def compose(self) -> ComposeResult:
        yield StyledLines(self._choices[0].lines, wrap=True)

    def on_mount(self) -> None:
        box = self.query_one(StyledLines)
        box.border_title = self._title
        other = "a shows the other choice, " if len(self._choices) > 1 else ""
        box.border_subtitle = f"y {self._verb}, {other}escape cancels"

    def on_lines_chosen(self, _: StyledLines.Chosen) -> None:
        self.action_answer(True)

    def action_other(self) -> None:
        """Show the next choice."""
        self._index = (self._index + 1) % len(self._choices)
        self.query_one(StyledLines).show(self._choices[self._index].lines)

    def action_answer(self, yes: bool) -> None:
        """Close the dialog with the value of the choice, or with `None` if the user cancels."""
        self.dismiss(self._choices[self._index].answer if yes else None)
