"""What worker threads read for a screen or a dialog: of each kind the newest counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

from textual import events
from textual.message import Message
from textual.widget import Widget

from dynadiag.errors import DynadiagError

if TYPE_CHECKING:
    from tui.line_actions import LineActionsApp

T = TypeVar("T")


class Fetching(Widget):
    """A screen or a dialog whose content is read in threads."""

    class Fetched(Message):
        """A worker has finished, with a result or an error."""

        def __init__(self, group: str, serial: int, result: Any, problem: str | None = None) -> None:
            super().__init__()
            self.group, self.serial, self.result, self.problem = group, serial, result, problem

    _serial = 0  # of the last worker

    @cached_property
    def _pending(self) -> dict[str, tuple[int, Callable[[Any], None]]]:
        return {}

    @property
    def is_open(self) -> bool:
        """Whether all widgets of it are there. While it is mounted or removed, some may not be."""
        return self.is_mounted and self.is_attached and bool(self.children) and not self._pruning

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Mount | events.Resize) and not self.children:
            return  # the browser ends while it is mounted: its widgets will not be there
        await super().on_event(event)

    @property
    def busy(self) -> bool:
        """Whether a worker has not finished."""
        return bool(self._pending)

    def fetch(self, group: str, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run `work` in a thread, then call `then` with its result unless the group has a newer worker."""
        self._serial += 1
        serial = self._serial
        self._pending[group] = (serial, then)

        def body() -> None:
            try:
                self.post_message(self.Fetched(group, serial, work()))
            except DynadiagError as error:
                self.post_message(self.Fetched(group, serial, None, str(error)))

        self.run_worker(body, thread=True, exclusive=True, group=group)

    def on_fetching_fetched(self, message: Fetched) -> None:
        message.stop()
        serial, then = self._pending.get(message.group, (0, None))
        if serial != message.serial or then is None or not self.is_open:
            return  # a newer worker has replaced it, or the screen is being closed
        del self._pending[message.group]
        if message.problem is not None:
            self.fetch_failed(message.problem)
            return
        with cast("LineActionsApp", self.app).reporting_problems():
            then(message.result)

    def fetch_failed(self, problem: str) -> None:
        """Show what is wrong with the recording."""
        raise NotImplementedError
