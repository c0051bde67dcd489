"""Dialogs: screens over the others, one with a list, and one that asks before a program runs or a file is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tui.fetching import Fetching
from tui.styled_text import Line, line
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Column, Table

if TYPE_CHECKING:
    from tui.command_process import Command


T = TypeVar("T")
Item = TypeVar("Item")


class ClosesOnce(ModalScreen[T]):
    """A screen that a key closes only where it is on top.

    The key may have been pressed before this screen was gone, or before another one came over it.
    """

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close the screen with a result; nothing happens where it is closed or lies under another one."""
        return super().dismiss(result) if self.is_active else AwaitComplete.nothing()


class Dialog(ClosesOnce[T], Fetching):
    """The base of our dialogs."""


class ListDialog(Dialog[T], Generic[Item, T]):
    """A dialog with a table, whose keys are the numbers of ``items``. Enter on a row returns what `answer` says."""

    COLUMNS: ClassVar[Sequence[Column]] = ()

    def __init__(self, items: Sequence[Item] = ()) -> None:
        super().__init__()
        self.items = list(items)

    def compose(self) -> ComposeResult:
        yield Table(self.COLUMNS)

    @property
    def table(self) -> Table:
        return self.query_one(Table)

    @property
    def selected(self) -> Item | None:
        key = self.table.key
        return self.items[key] if isinstance(key, int) and key < len(self.items) else None

    def on_lines_chosen(self, _: Lines.Chosen) -> None:
        item = self.selected
        if item is not None and (answer := self.answer(item)) is not None:
            self.dismiss(answer)

    def answer(self, item: Item) -> T | None:
        """What the dialog returns for an item, or ``None`` if it leads nowhere."""
        raise NotImplementedError


_RUNS_OFTEN = "This runs the program of the recording many times, with all its side effects."
_TOLD = {  # what the user has to know before, by the kind of a command; of a search see `command_choice`
    "explain": ("This runs the program of the recording, with all its side effects.",),
    "fix": ("Changes are tried in copies of your files; yours stay as they are.", _RUNS_OFTEN),
    "compare": ("Each compile mode runs in a process of its own.", _RUNS_OFTEN),
    "kernels": (
        "This runs the generated code of the recording on random inputs. Trust whoever made it.",
        "The times are kept in the recording.",
    ),
}


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """One way to run it: the lines that the dialog shows, and the value that it returns."""

    answer: T
    lines: Sequence[Line]


def command_choice(command: Command) -> Choice[Command]:
    """The choice to run a command: the command, its folder, and what the user has to know before."""
    failing = "A failure is what the program shows: an exception, a crash, a hang, an exit code."
    if "--accuracy" in command.options:
        failing = "Each compiled call is compared with its uncompiled self."
    head = (line((f"$ {command.text}", "strong")), line((f"in {command.folder}", "dim")), Line())
    return Choice(command, [*head, *map(line, _TOLD.get(command.kind, (failing, _RUNS_OFTEN)))])


class Confirm(Dialog["T | None"], Generic[T]):
    """Shows what would run. `y` or enter confirms, `a` shows the next choice, escape cancels."""

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
        self._index = (self._index + 1) % len(self._choices)
        self.query_one(StyledLines).show(self._choices[self._index].lines)

    def action_answer(self, yes: bool) -> None:
        """Close the dialog with the value of the choice, or with `None` if the user cancels."""
        self.dismiss(self._choices[self._index].answer if yes else None)
