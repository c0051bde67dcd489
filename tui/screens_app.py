"""The recordings and the screens of the application: reading, the jumps between them, and the status line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from rich.console import RenderableType
from textual import on
from textual.actions import ActionParseResult
from textual.dom import DOMNode
from textual.widgets import Static

from dynadiag.errors import DynadiagError
from dynadiag.kernels import isolated_job
from dynadiag.recording.opening import list_recordings
from tui.fetching import Fetching
from tui.line_actions import LineActionsApp
from tui.location import FILE_VIEW, History, Location, source_location_in
from tui.session import Session
from tui.styled_text import one_line
from tui.views import RANKS, SCREENS, ScreenInfo, import_screens, screen_named
from tui.views.base import View
from tui.widgets.prompt import Prompt
from tui.widgets.tabs import Tab, Tabs

_ONLY_ONE = "only one recording is open: O opens another one, `dynadiag browse A B` or `browse FOLDER` several"
_SECONDS_BETWEEN_CHECKS = 1.0  # of a recording that may grow
_SECONDS_BETWEEN_SCREENS = 0.1  # between two that are created while nothing happens
_SECONDS_IN_USE = 0.3  # after a key
_CLOSE_DELAY = 5.0  # seconds before the old recording is closed, as workers may still read it


class ScreensApp(LineActionsApp):
    """Opens recordings in a worker, and switches to one when it has been read completely.

    It creates a screen when it is shown first, or while no key is pressed, and goes from one location to another.
    """

    def __init__(self, session: Session, paths: Sequence[Path] = (), rank: int = 0, folder: Path | None = None) -> None:
        """Browse `session`. If it is one of a folder's recordings, `paths` are those and `rank` its index.

        ``folder`` is the state folder: it has the bookmarks, and its recordings are listed.
        """
        super().__init__()
        self.folder, self.session = folder, session
        self.paths, self.rank = paths, rank
        self.chosen_keys: Mapping[str, str] = {}  # the user's own keys by the id of their action
        self.leaving = False  # whether the browser is about to end
        self.reading = 0  # recordings being read
        self._last_request = 0  # the number of the last one that was asked for
        self._last_action = 0.0  # when an action was run
        self._current_name = ""
        self._views: dict[str, View] = {}
        self._opening = asyncio.Lock()  # held while a screen is created
        self._ahead = False  # whether the other screens are filled while no key is pressed
        self._place = ""  # the source line to open at, until it is found
        self._status = ("", "")  # what is shown, and where the cursor is
        self.history = History()
        self._pending_jumps = 0  # jumps that were requested and have not finished
        self.filled = False  # whether the other screens are there

    def on_mount(self) -> None:
        self.set_interval(_SECONDS_BETWEEN_CHECKS, self.check_recording)

    @property
    def busy(self) -> bool:
        """Whether something is being read, or a jump has not finished."""
        reads = [*self._views.values(), *(each for each in self.screen_stack if isinstance(each, Fetching))]
        return self._pending_jumps > 0 or self.reading > 0 or any(each.busy for each in reads)

    @property
    def is_in_use(self) -> bool:
        return monotonic() - self._last_action < _SECONDS_IN_USE

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action, and show the error if it finds a damaged recording. Once the browser ends, none is run."""
        if self.leaving:
            return False
        self._last_action = monotonic()
        with self.reporting_problems():
            return await super().run_action(action, default_namespace, namespaces)
        return True

    def exit(self, result: int | None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        """End the browser. Keys that were pressed after the last one do nothing: the screens are being closed."""
        self.leaving = True
        isolated_job.stop_all()  # a worker waits for each of them, and the browser for its workers
        super().exit(result, return_code, message)

    # Recordings

    def check_recording(self) -> None:
        """Check whether the recording has grown or disappeared."""
        seen = self.session.watch.check()
        ended = self.session.final_path
        if seen == "gone" and ended.is_file():
            self._read(ended, self._use)  # a search has ended: its journal has become its recording
        elif seen == "gone":
            self.report_problem(f"{self.session.path} was deleted: the browser shows what it has read")
        elif seen == "grown":
            self.action_reload()

    def action_reload(self) -> None:
        self._read(self.session.path, self._use)

    def _use(self, session: Session) -> None:
        """Take another recording in the place of this one."""
        old, self.session = self.session, session
        self.session_replaced()
        self.set_timer(_CLOSE_DELAY, old.close)

    def _read(self, path: Path, then: Callable[[Session], None]) -> None:
        self.reading += 1
        self._last_request += 1
        serial = self._last_request

        def read() -> None:
            start = monotonic()
            try:
                session = Session.open(path)
                session.explanation()
            except DynadiagError as error:
                self.call_from_thread(arrive, None, str(error))
            else:
                session.watch.read_in(monotonic() - start)
                self.call_from_thread(arrive, session, "")

        def arrive(session: Session | None, problem: str) -> None:
            self.reading -= 1
            if session is None:
                self.report_problem(problem)
                self.set_status("", "")
            elif serial == self._last_request:
                then(session)
            else:
                session.close()  # a newer request has replaced this one

        self.run_worker(read, thread=True, exclusive=True, group="reopen")

    # Screens

    @property
    def _screens(self) -> Sequence[ScreenInfo]:
        return (RANKS, *SCREENS) if self.paths else SCREENS

    @property
    def current(self) -> View:
        return self._views[self._current_name]

    def _update_tabs(self) -> None:
        found, numbers = self.session.known_explanation, dict[str, int]()
        if found is not None:
            numbers = {"compiles": len(found.compiles), "breaks": found.split_count}
            numbers |= {"recompiles": found.recompile_count, "kernels": self.session.kernel_count}
        for tabs in self.query(Tabs):  # none while the browser ends
            made = []
            for one in self._screens:
                key = self.chosen_keys.get(f"view.{one.name}", one.key).partition(",")[0]
                short = one.short_title or one.title
                titles = (one.title, short, one.shortest_title or short)
                made.append(Tab(one.name, key, titles, numbers.get(one.name)))
            tabs.tabs, tabs.current = made, self._current_name

    def create_first(self, screen: ScreenInfo) -> View:
        """Create the only screen that there is, in place of all others. It is to be mounted."""
        view = screen.create()
        self._views, self._current_name = {screen.name: view}, screen.name
        return view

    @property
    def _may_fill(self) -> bool:
        """Whether other screens are filled: not those of a running program, which are read again whenever it grows, not
        those of a folder, and none while the browser ends.
        """
        return self._ahead and not (self.paths or self.session.live or self.leaving) and bool(self.query("#views"))

    async def _fill_screens(self) -> None:
        """Import the other screens, and create them while nothing happens."""
        await asyncio.to_thread(import_screens)
        for screen in SCREENS:
            while (self.busy or self.is_in_use) and self._may_fill:
                await asyncio.sleep(_SECONDS_BETWEEN_SCREENS)
            async with self._opening:
                if not self._may_fill:
                    return
                if screen.name in self._views:
                    continue
                view = await self._view_of(screen.name)
                view.fill_offscreen()
            quiet = 0  # rows that have been read ask for their detail by a message: one look is not enough
            while view.is_offscreen:
                await asyncio.sleep(_SECONDS_BETWEEN_SCREENS)
                quiet = 0 if view.busy or self.is_in_use else quiet + 1
                if quiet > 1 and view.is_offscreen:  # a key may have shown it while this slept
                    view.leave_offscreen(shown=False)
        self.filled = True

    async def _view_of(self, name: str) -> View:
        """The screen of this name. It is hidden where it is new."""
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = screen_named(name).create()
            view.display = False
            await self.query_one("#views").mount(view)
        return view

    async def _switch(self, name: str) -> View:
        async with self._opening:
            view = await self._view_of(name)
        with self.batch_update():  # the screen is laid out and drawn once
            self.current.display = False
            self._current_name = name
            view.leave_offscreen(shown=True)
            self.query_one(Tabs).current = name
            self.set_status("", "")
            view.first_focus().focus()
            await view.screen_shown()
        return view

    def session_replaced(self) -> None:
        """Load every open screen from the new recording. Each screen keeps its location."""
        for view in self._views.values():
            view.load_if_open()
        self._update_tabs()
        self.set_status("", "")

    def update_counts(self) -> None:
        """Show the counts in the tabs. A screen calls this as soon as the explanation has been read."""
        self._update_tabs()
        self.run_worker(self._fill_screens(), group="screens")
        if self._place and (explanation := self.session.known_explanation) is not None:
            place, self._place = self._place, ""
            target = source_location_in(explanation, self.session.recording.source_files(), place)
            if target is None:
                self.notify(f"nothing of {one_line(place)} is in this recording", severity="warning", markup=False)
            self.go_to(target)

    async def action_view(self, name: str) -> None:
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
        return replace(self.current.location(), rank=self.rank)

    def go_to(self, target: Location | None) -> None:
        """Go to a location and add the current one to the history; nowhere without one, as a dialog may answer.

        A file opens in the user's editor.
        """
        if target is None:
            return
        if target.view == FILE_VIEW:
            self.edit_file(Path(target.document or ""))
            return

        async def leave() -> None:
            self.history.push(self.location)
            await self._navigate(target)

        self._jump_soon(leave)

    async def _navigate(self, place: Location) -> None:
        if place.rank not in (None, self.rank):
            self._open_rank(place.rank or 0, place)
            return
        view = await self._switch(place.view) if place.view != self._current_name else self.current
        view.go_to(place)

    def _open_rank(self, rank: int, place: Location) -> None:
        """Switch to another recording of the folder, then go to a place in it."""

        def arrived(session: Session) -> None:
            self.rank = rank
            self._use(session)
            self._jump_soon(lambda: self._navigate(place))

        self.set_status(f"reading {one_line(self.paths[rank].name)} ...", "")
        self._read(self.paths[rank], arrived)

    def _jump_soon(self, jump: Callable[[], Awaitable[None]]) -> None:
        """Run a jump after the current message. The browser counts as busy until the jump has ended."""

        async def jumped() -> None:
            await jump()
            self._pending_jumps -= 1

        self._pending_jumps += 1
        self.call_next(jumped)

    async def action_back(self) -> None:
        await self._go_in_history(self.history.back(self.location), "there is no previous location")

    async def action_forward(self) -> None:
        await self._go_in_history(self.history.forward(self.location), "there is no next location")

    async def _go_in_history(self, place: Location | None, missing: str) -> None:
        if place is not None:
            await self._navigate(place)
        elif missing:
            self.notify(missing)

    async def action_escape(self) -> None:
        if not self.clear_focused():
            await self._go_in_history(self.history.back(self.location), "")

    # Other recordings

    def go_to_in(self, target: tuple[Path, Location] | None) -> None:
        """Go to a location of another recording, or of the first of a folder, beside those that are open.

        Raises `UnreadableInput` if the folder has no recording.
        """
        if target is None:
            return
        path, place = target
        if path.resolve() == self.session.path.resolve():
            self.go_to(place)
            return
        self.set_status(f"reading {one_line(path.name)} ...", "")
        self.history.push(self.location)
        paths = [*(self.paths or [self.session.path])]
        opened = {one.resolve() for one in paths}
        found = list_recordings(path) if path.is_dir() else (path,)
        paths += [one for one in found if one.resolve() not in opened]
        rank = next(number for number, one in enumerate(paths) if one.resolve() == found[0].resolve())

        def arrived(session: Session) -> None:
            old, self.session = self.session, session
            self.paths, self.rank = paths if len(paths) > 1 else (), rank
            self._jump_soon(lambda: self._replace_views(place))
            self.set_timer(_CLOSE_DELAY, old.close)

        self._read(found[0], arrived)

    async def _replace_views(self, target: Location) -> None:
        """Show a location of another recording, in place of all screens."""
        prompt = self.query_one(Prompt)
        if prompt.has_class("open"):  # its answer is for a screen that is closed
            prompt.action_leave()
        async with self._opening:
            view = self.create_first(SCREENS[0])
            await self.query_one("#views").remove_children()
            await self.query_one("#views").mount(view)
        self._update_tabs()
        self.set_status("", "")
        view.first_focus().focus()
        if target.view != self._current_name:
            await self._navigate(target)

    def action_rank(self, by: int) -> None:
        if len(self.paths) < 2:
            self.notify(_ONLY_ONE)
        else:
            self.go_to(Location(self._current_name, rank=(self.rank + by) % len(self.paths)))

    # The status line

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
        self.set_status(*self._status)
