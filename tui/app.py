"""The application: its keys, its jumps, the recordings that are open, and the status line."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from dynadiag.errors import DynadiagError
from tui.bookmark_actions import BookmarkActionsApp
from tui.command_actions import CommandActionsApp
from tui.key_queue import KeyQueue
from tui.location import FILE_VIEW, History, Location, source_location_in
from tui.screens_app import ScreensApp
from tui.session import Session
from tui.settings_app import SettingsApp
from tui.styled_text import one_line
from tui.views import RANKS, SCREENS, View
from tui.views.overview import MIN_DETAILED, MIN_WIDE
from tui.widgets.ground import GroundContainer, GroundScreen
from tui.widgets.keys import Keys
from tui.widgets.prompt import Prompt
from tui.widgets.tabs import Tabs

if TYPE_CHECKING:
    from textual.command import Provider

    from tui.views.trials import TrialsView


MIN_SIZE = (40, 10)  # columns and rows; nothing can be laid out in less
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # signals after which the terminal must be restored too
_SIGNAL_EXIT_BASE = 128  # what a shell adds to a signal in an exit code
_ONLY_ONE = "only one recording is open: O opens another one, `dynadiag browse A B` or `browse FOLDER` several"
_MAX_SHORT_ROWS = 30  # with fewer rows, panes have no frames


def _palette_providers() -> type[Provider]:
    """Return the provider of the command palette. It is imported when the palette opens first."""
    from tui.command_palette import ActionProvider

    return ActionProvider


class Browser(ScreensApp, SettingsApp, CommandActionsApp, BookmarkActionsApp):
    """The terminal browser of one recording, or of several one after another."""

    CSS_PATH = "browser.tcss"
    TITLE = "dynadiag"
    ALLOW_SELECT = False  # Textual's own selection fails on a message; y copies
    COMMANDS = {_palette_providers}  # noqa: RUF012 - Textual declares it, as a class variable
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (MIN_DETAILED, "-medium"), (MIN_WIDE, "-wide")]  # noqa: RUF012 - as above
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(one.key, f"view('{one.name}')", f"{one.title}: {one.purpose}", show=False, id=f"view.{one.name}")
            for one in (*SCREENS, RANKS)
        ),
        Binding("greater_than_sign", "rank(1)", "next recording", show=False, id="ranks.next"),
        Binding("less_than_sign", "rank(-1)", "previous recording", show=False, id="ranks.previous"),
        Binding("tab", "pane(1)", "next pane", show=False, priority=True, id="app.next-pane"),
        Binding("shift+tab", "pane(-1)", "previous pane", show=False, priority=True, id="app.previous-pane"),
        Binding("backspace,H,ctrl+o", "back", "back", id="app.back"),
        Binding("L", "forward", "forward", show=False, id="app.forward"),
        Binding("question_mark,f1", "help", "help", id="app.help"),
        Binding("colon,ctrl+p", "command_palette", "all actions", id="app.palette"),
        Binding("B", "search_program('bisect')", "find the part of the compiler at fault", show=False, id="app.bisect"),
        Binding("M", "search_program('minify')", "write a small program with the failure", show=False, id="app.minify"),
        Binding(
            "t",
            "theme",
            "next theme",
            show=False,
            id="app.theme",
            tooltip="next theme: dark, light, the terminal's 16 colors, color-blind",
        ),
        Binding("X", "explain", "run the program again and record it (explain)", show=False, id="app.explain"),
        Binding("F", "fix", "look for changes that remove breaks and recompiles (fix)", show=False, id="app.fix"),
        Binding("T", "compare", "time the function in each compile mode (compare)", show=False, id="app.compare"),
        Binding("C", "diff", "compare with another recording (diff)", show=False, id="app.diff"),
        Binding("O", "open", "open another recording, too", show=False, id="app.open"),
        Binding("m", "mark", "bookmark this line, with a note", show=False, id="app.mark"),
        Binding("apostrophe", "marks", "list the bookmarks", show=False, id="app.marks"),
        Binding("W", "export", "write the screen to a file, as SVG or text", show=False, id="app.export"),
        Binding("P", "report", "write the recording as an HTML page (report)", show=False, id="app.report"),
        Binding("r", "reload", "reload the recording", show=False, id="app.reload"),
        Binding("q", "quit", "quit", id="app.quit"),
        Binding("ctrl+z", "suspend_process", "suspend (`fg` resumes)", show=False, id="app.suspend"),
        Binding("escape", "escape", "clear the search and the filter, or go back", show=False, id="app.escape"),
    ]

    def __init__(
        self,
        session: Session,
        paths: Sequence[Path] = (),
        rank: int = 0,
        *,
        place: str = "",
        folder: Path | None = None,
        pick: bool = False,
        ahead: bool = False,
    ) -> None:
        """``place`` is the source line to open at, as ``FILE:LINE``.

        ``folder`` is the state folder: it has the bookmarks, and its recordings are listed, if ``pick`` at once. With
        ``ahead`` the other screens are filled while no key is pressed, so that a key only has to show them.
        """
        super().__init__(session, paths, rank, folder)
        self._place, self._pick, self._ahead = place, pick, ahead
        self._status = ("", "")  # what is shown, and where the cursor is
        self.history = History()
        self._pending_jumps = 0  # jumps that were requested and have not finished
        self._typed = KeyQueue(self, super().on_event, lambda: self._pending_jumps > 0)

    def get_default_screen(self) -> Screen[None]:
        return GroundScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield Tabs(id="tabs")
        with GroundContainer(id="views"):
            yield self.create_first(self._screens[0])
        yield Prompt(id="prompt")
        yield Static(id="status", markup=False)
        yield Keys(id="keys")
        width, height = MIN_SIZE
        yield Static(f"too small: {width}x{height} at least", id="small", markup=False)

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.exit, _SIGNAL_EXIT_BASE + number)
        # Textual draws again after `fg` only where the size has changed; the terminal's screen is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.use_settings()
        self._update_tabs()
        if (focus := self.current.first_focus()) is not None:
            focus.focus()
        self.set_status("", "")
        if self._pick:
            self.action_open()

    @property
    def busy(self) -> bool:
        """Whether the recording is being read or a jump has not finished. Tests wait for this."""
        return self._pending_jumps > 0 or not self._typed.is_empty or super().busy

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            await self._typed.put(event)
        else:
            await super().on_event(event)

    def on_key_queue_handled(self, message: KeyQueue.Handled) -> None:
        self._typed.handled(message.number)

    # Screens

    def update_counts(self) -> None:
        """Show the counts in the tabs. A screen calls this as soon as the explanation has been read."""
        self._update_tabs()
        self.run_worker(self._fill_screens(), group="screens")
        if self._place and (explanation := self.session.known_explanation) is not None:
            place, self._place = self._place, ""
            target = source_location_in(explanation, self.session.recording.source_files(), place)
            if target is not None:
                self.go_to(target)
            else:
                self.notify(f"nothing of {one_line(place)} is in this recording", severity="warning", markup=False)

    async def action_view(self, name: str) -> None:
        """Show the screen of this name."""
        if name == RANKS.name and not self.paths:
            self.notify(_ONLY_ONE)
        elif name != self._current_name:
            self.history.push(self.location)
            await self._switch(name)

    @on(Tabs.Clicked)
    async def _tab_clicked(self, message: Tabs.Clicked) -> None:
        await self.action_view(message.name)

    # Jumps

    @property
    def location(self) -> Location:
        """The current location, with its rank."""
        return replace(self.current.location(), rank=self.rank)

    def go_to(self, target: Location) -> None:
        """Go to a location and add the current one to the history. A file opens in the user's editor."""
        if target.view == FILE_VIEW:
            self.edit_file(Path(target.document or ""))
            return
        self._jump_soon(lambda: self._leave_for(target))

    async def _leave_for(self, target: Location) -> None:
        self.history.push(self.location)
        await self._navigate(target)

    async def _navigate(self, place: Location) -> None:
        if place.rank not in (None, self.rank):
            rank = place.rank or 0
            self.set_status(f"reading {one_line(self.paths[rank].name)} ...", "")
            self.open_rank(rank, lambda: self._navigate_soon(place))
            return
        view = await self._switch(place.view) if place.view != self._current_name else self.current
        view.go_to(place)

    def _navigate_soon(self, place: Location) -> None:
        self._jump_soon(lambda: self._navigate(place))

    def _jump_soon(self, jump: Callable[[], Awaitable[None]]) -> None:
        """Run a jump after the current message. The browser counts as busy until the jump has ended."""

        async def jumped() -> None:
            await jump()
            self._pending_jumps -= 1

        self._pending_jumps += 1
        self.call_next(jumped)

    async def action_back(self) -> None:
        """Go back to the previous location."""
        place = self.history.back(self.location)
        if place is None:
            self.notify("there is no previous location")
        else:
            await self._navigate(place)

    async def action_escape(self) -> None:
        """Clear the search and the filter; where there are none, go back."""
        if not self.clear_focused() and (place := self.history.back(self.location)) is not None:
            await self._navigate(place)

    async def action_forward(self) -> None:
        """Go forward to the location that `back` left."""
        place = self.history.forward(self.location)
        if place is None:
            self.notify("there is no next location")
        else:
            await self._navigate(place)

    def action_pane(self, direction: int) -> None:
        """Move the focus to the next or previous pane of the screen; on other screens, to the next widget."""
        step = getattr(self.current, "step", None)
        if len(self.screen_stack) > 1 or step is None or not step(direction):
            self.screen.focus_next() if direction > 0 else self.screen.focus_previous()

    async def action_search(self) -> None:
        if not await self.current.ask_search():
            await super().action_search()

    # Other actions

    async def action_search_program(self, kind: str) -> None:
        """Go to the Trials screen and start a search there, after a question."""
        await self.action_view("trials")
        cast("TrialsView", self.current).action_start(kind)

    def action_help(self) -> None:
        """Explain the words on the cursor's line, and show every key of the current screen."""
        from dynadiag.explanation.glossary import explain_words
        from tui.help import HelpScreen

        view = self.current
        own = [
            item for kind in type(view).__mro__ if issubclass(kind, View) for item in kind.__dict__.get("BINDINGS", ())
        ]
        sections = [(type(view).TITLE, own), ("Everywhere", type(self).BINDINGS)]
        lines, words = self.focused_lines, []
        if lines is not None and lines.count:
            try:
                words = list(explain_words(f"{lines.border_title or ''} {lines.text_of(lines.cursor)}"))
            except DynadiagError as error:  # torch's registry is damaged
                self.report_problem(str(error))
        self.push_screen(HelpScreen(sections, self.chosen_keys, words))

    def action_command_palette(self) -> None:
        """Show the palette of all actions."""
        from tui.command_palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def action_help_quit(self) -> None:
        """Answer ctrl+c with a hint. It does not quit: the user may mean to stop a search or to copy text."""
        self.notify("press q to quit")

    def get_system_commands(self, _screen: Screen[object]) -> Iterable[SystemCommand]:
        """Return no commands of Textual's own; the palette lists ours."""
        return ()

    def set_status(self, what: str, where: str) -> None:
        """Write the status line: the recording, what is shown (`what`) and where the cursor is (`where`)."""
        self._status = what, where
        name = one_line(self.session.path.name)
        live = "● live  " if self.session.live else ""
        which = f"{self.rank + 1} of {len(self.paths)}" if self.paths else ""
        lines = self.focused_lines
        found = lines.match_position() if lines is not None else ""
        match = f"{one_line(lines.matcher.pattern)}: {found}, }} next" if lines is not None and found else ""
        parts = [part for part in (f"{live}{name}", which, what, where, match) if part]
        for status in self.query("#status").results(Static):  # none while the browser ends
            if status.content != (text := " · ".join(parts)):
                status.update(text, layout=False)

    def on_lines_found(self) -> None:
        """Show which match the cursor is on."""
        self.set_status(*self._status)

    def on_resize(self, event: events.Resize) -> None:
        width, height = MIN_SIZE
        self.screen.set_class(event.size.width < width or event.size.height < height, "-tiny")
        self.screen.set_class(event.size.height < _MAX_SHORT_ROWS, "-short")

    # Other recordings

    def action_open(self) -> None:
        """List the recordings of the state folder and of the open ones' folders, and open the chosen one, too."""
        first, self._pick = self._pick, False
        self.pick_recording(self._open, self.session.path, first=first)

    def _open(self, path: Path | None) -> None:
        if path is not None:
            self.go_to_in(path, Location(SCREENS[0].name))

    def go_to_in(self, path: Path, target: Location) -> None:
        if path.resolve() == self.session.path.resolve():
            self.go_to(target)
            return
        self.set_status(f"reading {one_line(path.name)} ...", "")
        self.history.push(self.location)
        self.open_recording(path, lambda: self._jump_soon(lambda: self._replace_views(target)))

    async def _replace_views(self, target: Location) -> None:
        """Show a location of another recording, in place of all screens."""
        prompt = self.query_one(Prompt)
        if prompt.has_class("open"):  # its answer is for a screen that is closed
            prompt.action_leave()
        view = await self._replace_all(SCREENS[0])
        self._update_tabs()
        self.set_status("", "")
        if (focus := view.first_focus()) is not None:
            focus.focus()
        if target.view != self._current_name:
            await self._navigate(target)

    def action_rank(self, by: int) -> None:
        """Show the same screen of the next or previous recording."""
        if len(self.paths) < 2:
            self.notify(_ONLY_ONE)
        else:
            self.go_to(Location(self._current_name, rank=(self.rank + by) % len(self.paths)))

    def session_kept(self) -> None:
        """Clear the message that a recording is being read."""
        self.set_status("", "")
