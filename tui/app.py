"""The application: screens by number, jumps, search and filter, what is said at the bottom."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Static

from dynadiag.errors import DynadiagError
from tui.location import History, Location
from tui.roles import one_line
from tui.session import Session
from tui.views import SCREENS, View
from tui.watch import Watch
from tui.widgets.lines import Filtered, Lines
from tui.widgets.prompt import Prompt
from tui.widgets.tabs import Tab, Tabs

if TYPE_CHECKING:
    from textual.command import Provider

__all__ = ["Browser"]

SMALLEST = (40, 10)  # columns and rows below which nothing can be laid out
_SHORT = 30  # rows below which frames are left out


def _actions() -> type[Provider]:
    """What the palette is filled from; imported when it is opened."""
    from tui.commands import Actions

    return Actions


class Goto(Message):
    """The user wants to be somewhere else."""

    def __init__(self, place: Location) -> None:
        super().__init__()
        self.place = place


class Browser(App[int]):
    """The terminal browser of one recording."""

    CSS_PATH = "browser.tcss"
    TITLE = "dynadiag"
    COMMANDS = {_actions}  # noqa: RUF012 - Textual declares it, as a class variable
    COMMAND_PALETTE_BINDING = "ctrl+p"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (150, "-wide")]  # noqa: RUF012 - as above
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(key), f"view('{one.name}')", f"{one.title}: {one.purpose}", show=False, id=f"view.{one.name}")
            for key, one in enumerate(SCREENS, 1)
        ),
        Binding("tab", "pane(1)", "the next pane", show=False, priority=True, id="app.next-pane"),
        Binding("shift+tab", "pane(-1)", "the pane before", show=False, priority=True, id="app.previous-pane"),
        Binding("backspace,H,ctrl+o", "back", "back", key_display="⌫", id="app.back"),
        Binding("L", "forward", "forward", show=False, id="app.forward"),
        Binding("question_mark", "help", "help", key_display="?", id="app.help"),
        Binding("colon", "command_palette", "every action", show=False, id="app.palette"),
        Binding("t", "theme", "light or dark", show=False, id="app.theme"),
        Binding("r", "reload", "read the recording again", show=False, id="app.reload"),
        Binding("q", "quit", "quit", id="app.quit"),
        Binding("escape", "escape", "leave the search", show=False, id="app.escape"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.history = History()
        self._recorder = Watch(session.path, live=session.live)
        self._shown = SCREENS[0].name
        self._views: dict[str, View] = {}
        self._going = 0  # jumps that were asked for and have not arrived

    def compose(self) -> ComposeResult:
        self._views[self._shown] = SCREENS[0].make()
        yield Tabs(id="tabs")
        with Container(id="views"):
            yield self.current
        yield Prompt(id="prompt")
        yield Static(id="status", markup=False)
        yield Footer(show_command_palette=False)
        width, height = SMALLEST
        yield Static(f"too small: {width}x{height} at least", id="small", markup=False)

    def on_mount(self) -> None:
        self._tab_line()
        if (focus := self.current.first_focus()) is not None:
            focus.focus()
        self.say("", "")
        self.set_interval(self._recorder.interval, self.look)

    @property
    def busy(self) -> bool:
        """Whether something is still being read, or a jump is under way."""
        return self._going > 0 or any(view.busy for view in self._views.values())

    # Screens

    @property
    def current(self) -> View:
        """The screen that is shown."""
        return self._views[self._shown]

    def _tab_line(self) -> None:
        numbers = self._numbers()
        tabs = self.query_one(Tabs)
        tabs.tabs = [Tab(s.name, s.title, str(i), numbers.get(s.name)) for i, s in enumerate(SCREENS, 1)]
        tabs.current = self._shown

    def _numbers(self) -> dict[str, int]:
        explanation = self.session.known_explanation
        if explanation is None:
            return {}
        return {
            "compiles": len(explanation.compiles),
            "breaks": explanation.break_count,
            "recompiles": explanation.recompile_count,
            "kernels": len(explanation.kernels),
        }

    def explained(self) -> None:
        """The explanation is there: the counts can be shown."""
        self._tab_line()

    async def action_view(self, name: str) -> None:
        if name != self._shown:
            self.history.leave(self.current.place())
            await self._switch(name)

    async def _switch(self, name: str) -> View:
        self.current.display = False
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = next(one for one in SCREENS if name == one.name).make()
            await self.query_one("#views").mount(view)
        self._shown = name
        view.display = True
        self.query_one(Tabs).current = name
        self.say("", "")
        if (focus := view.first_focus()) is not None:
            focus.focus()
        return view

    @on(Tabs.Clicked)
    async def _tab_clicked(self, message: Tabs.Clicked) -> None:
        await self.action_view(message.name)

    # Jumps

    def goto(self, place: Location) -> None:
        """Go to a place, so that back comes back here."""
        self._going += 1
        self.post_message(Goto(place))

    @on(Goto)
    async def _goto(self, message: Goto) -> None:
        message.stop()
        self.history.leave(self.current.place())
        await self._go(message.place)
        self._going -= 1

    async def _go(self, place: Location) -> None:
        view = await self._switch(place.view) if place.view != self._shown else self.current
        view.open(place)

    async def action_back(self) -> None:
        place = self.history.back(self.current.place())
        if place is None:
            self.notify("this is where you began")
        else:
            await self._go(place)

    async def action_forward(self) -> None:
        place = self.history.forward(self.current.place())
        if place is None:
            self.notify("there is nothing ahead")
        else:
            await self._go(place)

    def action_pane(self, way: int) -> None:
        step = getattr(self.current, "step", None)
        if len(self.screen_stack) > 1 or step is None or not step(way):
            self.screen.focus_next() if way > 0 else self.screen.focus_previous()

    # Searching, filtering, writing

    def _focused_lines(self) -> Lines | None:
        return self.focused if isinstance(self.focused, Lines) else None

    async def action_search(self) -> None:
        if (lines := self._focused_lines()) is not None:
            await self.query_one(Prompt).ask("/", lines.finder.pattern, lambda text: self._search(lines, text))

    def _search(self, lines: Lines, text: str) -> None:
        lines.focus()
        if not lines.search(text):
            self.notify(f"not found: {text}", severity="warning", markup=False)

    async def action_filter(self) -> None:
        lines = self._focused_lines()
        if isinstance(lines, Filtered):
            await self.query_one(Prompt).ask("filter: ", lines.filter, lambda text: self._filter(lines, text))

    def _filter(self, lines: Filtered, text: str) -> None:
        lines.focus()
        lines.set_filter(text)
        lines.border_subtitle = f"{lines.count:,} with {one_line(text)}" if text else f"{lines.count:,}"

    async def action_write(self) -> None:
        if (lines := self._focused_lines()) is not None:
            await self.query_one(Prompt).ask("write to: ", "", lambda text: self._write(lines, text))

    def _write(self, lines: Lines, name: str) -> None:
        lines.focus()
        if not name:
            return
        path = Path(name).expanduser()
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(lines.whole())
        except FileExistsError:
            self.notify(f"{path} exists: give another name", severity="error", markup=False)
        except OSError as error:
            self.notify(f"cannot write {path}: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"{lines.count:,} lines written to {path}", markup=False)

    def action_edit(self) -> None:
        if (lines := self._focused_lines()) is not None and (document := lines.document) is not None:
            from tui.editor import edit

            problem = edit(self, document, lines.cursor + 1)
            if problem:
                self.notify(problem, severity="error", markup=False)

    def edit_file(self, path: Path) -> None:
        """Open a file of the user's own."""
        from tui.editor import edit_path

        problem = edit_path(self, path, 1)
        if problem:
            self.notify(problem, severity="error", markup=False)

    def action_escape(self) -> None:
        if (lines := self._focused_lines()) is not None:
            lines.search("")
            if isinstance(lines, Filtered) and lines.filter:
                self._filter(lines, "")

    # The rest

    def action_help(self) -> None:
        from tui.help import HelpScreen

        view = self.current
        own = [
            item for kind in type(view).__mro__ if issubclass(kind, View) for item in kind.__dict__.get("BINDINGS", ())
        ]
        sections = [(type(view).TITLE, own), ("Everywhere", type(self).BINDINGS)]
        self.push_screen(HelpScreen(sections))

    def action_theme(self) -> None:
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def get_system_commands(self, _screen: Screen[object]) -> Iterable[SystemCommand]:
        return ()

    def say(self, what: str, where: str) -> None:
        """One line at the bottom: the recording, what is shown, where the cursor is."""
        name = one_line(self.session.path.name)
        live = "● live  " if self.session.live else ""
        parts = [part for part in (f"{live}{name}", what, where) if part]
        self.query_one("#status", Static).update(" · ".join(parts))

    def say_problem(self, reason: str) -> None:
        """Something could not be read."""
        self.notify(one_line(reason), title="cannot read", severity="error", timeout=10, markup=False)

    def on_resize(self, event: events.Resize) -> None:
        width, height = SMALLEST
        self.screen.set_class(event.size.width < width or event.size.height < height, "-tiny")
        self.screen.set_class(event.size.height < _SHORT, "-short")

    # A recording that is still written

    def look(self) -> None:
        """See whether the recording has grown, or gone."""
        seen = self._recorder.look()
        if seen == "gone":
            self.say_problem(f"{self.session.path} is gone: what was read of it is still shown")
        elif seen == "grown":
            self.action_reload()

    def action_reload(self) -> None:
        self.run_worker(self._reopen, thread=True, exclusive=True, group="reopen")

    def _reopen(self) -> None:
        try:
            with self._recorder.timed():
                session = Session.open(self.session.path)
                session.explanation()
        except DynadiagError as error:
            self.call_from_thread(self.say_problem, str(error))
            return
        self.call_from_thread(self._take, session)

    def _take(self, session: Session) -> None:
        """Go on with what was read anew; every screen keeps its place."""
        old, self.session = self.session, session
        self._recorder.live = session.live
        for view in self._views.values():
            view.load()
        self._tab_line()
        self.say("", "")
        self.set_timer(5, old.close)  # a worker may still be reading from it
