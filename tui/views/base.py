"""What every screen is: a place to go to, filled by workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.containers import Container
from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from dynadiag.errors import DynadiagError
from tui.location import Location
from tui.session import Session

if TYPE_CHECKING:
    from tui.app import Browser

__all__ = ["Goto", "View"]

T = TypeVar("T")


class Goto(Message):
    """The user wants to be somewhere else."""

    def __init__(self, place: Location) -> None:
        super().__init__()
        self.place = place


class View(Container):
    """A screen. Subclasses fill themselves in `load` and go to places in `open`."""

    DEFAULT_CSS = "View { height: 1fr; }"
    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    PURPOSE: ClassVar[str]  # for the palette and the help

    class Fetched(Message):
        """A worker has what it was sent for."""

        def __init__(self, then: Callable[[Any], None], result: Any) -> None:
            super().__init__()
            self.then, self.result = then, result

    class Failed(Message):
        """A worker could not read the recording."""

        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

    @property
    def browser(self) -> Browser:
        return cast("Browser", self.app)

    @property
    def session(self) -> Session:
        return self.browser.session

    def on_mount(self) -> None:
        self.load()

    def load(self) -> None:
        """Read what the screen shows, in a worker; also when the recording has grown."""

    def open(self, place: Location) -> None:
        """Go to a place on this screen."""

    def place(self) -> Location:
        """Where the user is on it."""
        return Location(self.NAME)

    def first_focus(self) -> Widget | None:
        """The widget that gets the keys when the screen is opened."""
        return None

    def fetch(self, group: str, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `work` in a thread and `then` something with its result here; a newer fetch of the group supersedes it."""

        def body() -> None:
            worker = get_current_worker()
            try:
                result = work()
            except DynadiagError as error:
                self.post_message(self.Failed(str(error)))
                return
            if not worker.is_cancelled:
                self.post_message(self.Fetched(then, result))

        self.run_worker(body, thread=True, exclusive=True, group=group)

    def on_view_fetched(self, message: Fetched) -> None:
        message.stop()
        message.then(message.result)

    def on_view_failed(self, message: Failed) -> None:
        message.stop()
        self.browser.say_problem(message.reason)
