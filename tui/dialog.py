"""A screen over the others that closes once, however often it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from tui.widgets.lifetime import has_widgets
from tui.widgets.lines import Lines
from tui.widgets.table import Column, Table

T = TypeVar("T")
Item = TypeVar("Item")


class ClosesOnce(ModalScreen[T]):
    """A screen that a key closes only where it is on top.

    The key may have been pressed before this screen was gone, or before another one came over it.
    """

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close the screen with a result; nothing happens where it is closed or lies under another one."""
        return super().dismiss(result) if self.is_active else AwaitComplete.nothing()


class Dialog(ClosesOnce[T]):
    """The base of our dialogs."""

    @property
    def is_open(self) -> bool:
        """Whether the widgets of the dialog are there."""
        return has_widgets(self)


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
        """The list."""
        return self.query_one(Table)

    @property
    def selected(self) -> Item | None:
        """The item under the cursor."""
        key = self.table.key
        return self.items[key] if isinstance(key, int) and key < len(self.items) else None

    def on_lines_chosen(self, _: Lines.Chosen) -> None:
        item = self.selected
        if item is not None and (answer := self.answer(item)) is not None:
            self.dismiss(answer)

    def answer(self, item: Item) -> T | None:
        """What the dialog returns for an item, or ``None`` if it leads nowhere."""
        raise NotImplementedError
