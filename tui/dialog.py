"""A screen over the others that closes once, however often it is told to."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

__all__ = ["Dialog"]

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """The base of our dialogs. A key that was pressed before the dialog was gone does not close the screen below."""

    @property
    def is_open(self) -> bool:
        """Whether the widgets of the dialog are there. While it is mounted or removed, they may not be."""
        return self.is_attached and bool(self.children)

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close the dialog with a result; nothing happens where it is closed."""
        return super().dismiss(result) if self.is_active else AwaitComplete.nothing()
