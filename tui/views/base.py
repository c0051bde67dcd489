"""The base class of all screens. A screen is a location to go to, and workers fill it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, cast

from textual.timer import Timer
from textual.widget import Widget

from tui.fetching import Fetching
from tui.location import Location
from tui.session import Session
from tui.widgets.ground import GroundContainer
from tui.widgets.lines import FilterableLines, Lines

if TYPE_CHECKING:
    from tui.app import Browser


_SEARCH_ONLY = "this is the recording of a search: 8 shows its trials; record the program itself to see compiles"
_NOTHING_COMPILED = "nothing was compiled"
_NOT_OF_COMPILES = ("trials", "events")  # screens that do not show what was compiled
_OFFSCREEN = "offscreen"  # a class of the style sheet
_KEYS_OF_ROWS = ("choose", "app.search", "app.filter")  # actions
_DEBOUNCE_SECONDS = 0.05  # seconds; a held key repeats every 0.03 s


class View(GroundContainer, Fetching):
    """A screen. Subclasses read their content in `load` and go to locations in `go_to`."""

    DEFAULT_CSS = "View { height: 1fr; }"
    NAME: ClassVar[str]  # also the name of its module; both are from the table of the screens
    TITLE: ClassVar[str]

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(id=self.NAME, classes=classes)
        self._debounce_timer: Timer | None = None
        self._last_move = 0.0  # when the cursor was last moved

    @property
    def browser(self) -> Browser:
        return cast("Browser", self.app)

    @property
    def session(self) -> Session:
        return self.browser.session

    def on_mount(self) -> None:
        self.call_after_refresh(self.load_first)  # draw the empty screen first

    @property
    def is_current(self) -> bool:
        """Whether this is the screen that is shown. Others may be filled while they are hidden."""
        return self.browser.current is self

    def show_status(self, what: str, where: str) -> None:
        """Write the status line, if this is the screen that is shown."""
        if self.is_current:
            self.browser.set_status(what, where)

    def load_first(self) -> None:
        """Read the content, unless a jump has read it. To read it again would move the cursor off the jump's line."""
        if not self._serial:
            self.load_if_open()

    @property
    def is_offscreen(self) -> bool:
        """Whether the screen is being filled right of the terminal's edge."""
        return self.is_open and self.has_class(_OFFSCREEN)

    def fill_offscreen(self) -> None:
        """Fill the screen right of the terminal's edge, where nothing is drawn.

        It has its size there, and so its scroll bars and details: to show it is one layout instead of three.
        """
        self.add_class(_OFFSCREEN)
        self.display = True
        self.load_first()

    def leave_offscreen(self, *, shown: bool) -> None:
        """Show the screen, or hide it. What is hidden is drawn once before: the key that shows it draws less then."""
        if not shown:
            for pane in self.query(Lines):
                pane.render_lines(pane.outer_size.region)
        self.display = shown
        self.remove_class(_OFFSCREEN)

    def allow_focus_children(self) -> bool:
        return not self.has_class(_OFFSCREEN) and super().allow_focus_children()

    def load_if_open(self) -> None:
        """Read the content, unless the screen is being closed."""
        if self.is_open:
            self.load()

    def load(self) -> None:
        """Read the content in a worker. Called again when the recording has grown."""

    def go_to(self, target: Location) -> None:
        """Go to a location on this screen."""

    def location(self) -> Location:
        """Return the user's location on this screen."""
        return Location(self.NAME)

    async def screen_shown(self) -> None:
        """Called whenever the screen is shown."""

    async def ask_search(self) -> bool:
        """Ask for a search of the screen's own. Return whether the screen has one."""
        return False

    def first_focus(self) -> Widget:
        """Return the widget that gets the focus when the screen opens."""
        raise NotImplementedError

    def offers(self, action: str) -> bool:
        """Whether a key does something now: those of rows need some, and not every list can be filtered."""
        lines = self.screen.focused
        if action not in _KEYS_OF_ROWS or not isinstance(lines, FilterableLines):
            return True
        return lines.whole_count > 0 and not (action == "app.filter" and lines.unfiltered_because)

    @property
    def busy(self) -> bool:
        """Whether a worker or a delayed read has not finished."""
        return super().busy or self._debounce_timer is not None

    # Textual calls the handlers of a class and of all its base classes. So only this class has handlers, and subclasses
    # override the methods that the handlers call.

    def on_lines_moved(self, message: Lines.Moved) -> None:
        message.stop()
        with self.browser.reporting_problems():
            self.cursor_moved(message.lines)

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        message.stop()
        with self.browser.reporting_problems():
            self.line_chosen(message.lines)

    def cursor_moved(self, lines: Lines) -> None:
        """Called when the cursor is on another line."""

    def line_chosen(self, lines: Lines) -> None:
        """Called on enter, or on a double click, on a line."""

    def fetch_failed(self, problem: str) -> None:
        if self.is_current:
            self.browser.report_problem(problem)
        self.show_problem(problem)

    def nothing(self, words: str) -> str:
        """What to say of an empty screen. A search records its trials; what they compiled, it does not."""
        explanation = self.session.known_explanation
        if self.NAME in _NOT_OF_COMPILES or (explanation is not None and explanation.compiles):
            return words
        return _SEARCH_ONLY if self.session.trial_count else words if explanation is None else _NOTHING_COMPILED

    def show_problem(self, reason: str) -> None:
        """Show an error in the place of the content."""

    def debounce(self, then: Callable[[], None]) -> None:
        """Call `then` now; while a key is held, once the cursor has not moved for a moment."""

        def rested() -> None:
            self._debounce_timer = None
            with self.browser.reporting_problems():
                if self.is_open:
                    then()

        held, self._last_move = monotonic() - self._last_move < _DEBOUNCE_SECONDS, monotonic()
        if self._debounce_timer is not None:
            self._debounce_timer.stop()
        if held:
            self._debounce_timer = self.set_timer(_DEBOUNCE_SECONDS, rested)
        else:
            rested()
