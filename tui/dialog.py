"""A screen over the others that closes once, however often it is told to."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from tui.widgets.lifetime import has_widgets

T = TypeVar("T")


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
