"""What every screen is: a place to go to, filled by workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.containers import Container
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget

from dynadiag.errors import DynadiagError
from tui.location import Location
from tui.session import Session
from tui.widgets.lines import Lines

if TYPE_CHECKING:
    from tui.app import Browser

__all__ = ["View"]

_DEBOUNCE = 0.05  # seconds that the cursor rests before a detail is read: a held key repeats every 0.03

T = TypeVar("T")


class View(Container):
    """A screen. Subclasses fill themselves in `load` and go to places in `open`."""

    DEFAULT_CSS = "View { height: 1fr; }"
    NAME: ClassVar[str]  # of its module too
    TITLE: ClassVar[str]

    class Fetched(Message):
        """A worker has what it was sent for, or the reason why not."""

        def __init__(self, group: str, serial: int, result: Any, problem: str | None = None) -> None:
            super().__init__()
            self.group, self.serial, self.result, self.problem = group, serial, result, problem

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(id=self.NAME, classes=classes)
        self._serial = 0
        self._out: dict[str, tuple[int, Callable[[Any], None]]] = {}  # what workers are out for, by group
        self._resting: Timer | None = None

    @property
    def browser(self) -> Browser:
        return cast("Browser", self.app)

    @property
    def session(self) -> Session:
        return self.browser.session

    def on_mount(self) -> None:
        self.call_after_refresh(self.load)  # first the frame, then what is in it

    def load(self) -> None:
        """Read what the screen shows, in a worker; also when the recording has grown."""

    def open(self, place: Location) -> None:
        """Go to a place on this screen."""

    def place(self) -> Location:
        """Where the user is on it."""
        return Location(self.NAME)

    async def arrived(self) -> None:
        """The screen is shown, again or for the first time."""

    async def ask(self) -> bool:
        """Ask for a search of its own in place of that within the lines; whether it has one."""
        return False

    def first_focus(self) -> Widget | None:
        """The widget that gets the keys when the screen is opened."""
        return None

    @property
    def busy(self) -> bool:
        """Whether something is still to come."""
        return bool(self._out) or self._resting is not None

    def awaits(self, group: str) -> bool:
        """Whether a worker of this group is out."""
        return group in self._out

    def fetch(self, group: str, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `work` in a thread, and `then` something with its result here, unless the group has a newer fetch."""
        self._serial += 1
        serial = self._serial
        self._out[group] = (serial, then)

        def body() -> None:
            try:
                self.post_message(self.Fetched(group, serial, work()))
            except DynadiagError as error:
                self.post_message(self.Fetched(group, serial, None, str(error)))

        self.run_worker(body, thread=True, exclusive=True, group=group)

    # Textual calls the handlers of a class and of those above it, all of them: so there is one, and what it calls is
    # for subclasses to override.

    def on_lines_moved(self, message: Lines.Moved) -> None:
        message.stop()
        with self.browser.saying_problems():
            self.moved(message.lines)

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        message.stop()
        with self.browser.saying_problems():
            self.chosen(message.lines)

    def moved(self, lines: Lines) -> None:
        """The cursor stands on another line."""

    def chosen(self, lines: Lines) -> None:
        """Enter, or a double click, on a line."""

    def on_view_fetched(self, message: Fetched) -> None:
        message.stop()
        serial, then = self._out.get(message.group, (0, None))
        if serial != message.serial or then is None:
            return  # superseded
        del self._out[message.group]
        if message.problem is None:
            with self.browser.saying_problems():
                then(message.result)
        else:
            self.browser.say_problem(message.problem)
            self.show_problem(message.problem)

    def show_problem(self, reason: str) -> None:
        """Say, where something would have stood, why it could not be read."""

    def rest(self, then: Callable[[], None]) -> None:
        """Do something once the cursor has come to rest."""

        def rested() -> None:
            self._resting = None
            with self.browser.saying_problems():
                then()

        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(_DEBOUNCE, rested)
