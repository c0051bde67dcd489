"""The screens of the application, the jumps between them and between recordings, and the status line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from textual import on
from textual.widgets import Static

from tui.location import FILE_VIEW, History, Location, source_location_in
from tui.recording_app import RecordingApp
from tui.session import Session
from tui.styled_text import one_line
from tui.views import RANKS, SCREENS, ScreenInfo, import_screens, screen_named
from tui.views.base import View
from tui.widgets.prompt import Prompt
from tui.widgets.tabs import Tab, Tabs

_ONLY_ONE = "only one recording is open: O opens another one, `dynadiag browse A B` or `browse FOLDER` several"
_SECONDS_BETWEEN_SCREENS = 0.1  # between two that are created while nothing happens


class ScreensApp(RecordingApp):
    """Creates a screen when it is shown first, or while no key is pressed, and goes from one location to another."""

    def __init__(self, session: Session, paths: Sequence[Path] = (), rank: int = 0, folder: Path | None = None) -> None:
        super().__init__(session, paths, rank, folder)
        self._current_name = ""
        self._views: dict[str, View] = {}
        self._opening = asyncio.Lock()  # held while a screen is created
        self._ahead = False  # whether the other screens are filled while no key is pressed
        self._place = ""  # the source line to open at, until it is found
        self._status = ("", "")  # what is shown, and where the cursor is
        self.history = History()
        self._pending_jumps = 0  # jumps that were requested and have not finished
        self.filled = False  # whether the other screens are there

    @property
    def busy(self) -> bool:
        """Whether something is being read, or a jump has not finished."""
        return self._pending_jumps > 0 or self.reading > 0 or any(view.busy for view in self._views.values())

    @property
    def _screens(self) -> Sequence[ScreenInfo]:
        return (RANKS, *SCREENS) if self.paths else SCREENS

    @property
    def current(self) -> View:
        """The screen that is shown."""
        return self._views[self._current_name]

    def _update_tabs(self) -> None:
        numbers = self._tab_counts()
        for tabs in self.query(Tabs):  # none while the browser ends
            tabs.tabs = [
                Tab(s.name, s.title, self._key_of(s), numbers.get(s.name), s.tab_title, s.shortest_title)
                for s in self._screens
            ]
            tabs.current = self._current_name

    def _key_of(self, screen: ScreenInfo) -> str:
        return self.chosen_keys.get(f"view.{screen.name}", screen.key).partition(",")[0]

    def _tab_counts(self) -> dict[str, int]:
        explanation = self.session.known_explanation
        if explanation is None:
            return {}
        return {
            "compiles": len(explanation.compiles),
            "breaks": explanation.break_count,
            "recompiles": explanation.recompile_count,
            "kernels": self.session.kernel_count,
        }

    def create_first(self, screen: ScreenInfo) -> View:
        """Create the only screen that there is, in place of all others. It is to be mounted."""
        view = screen.create()
        self._views, self._current_name = {screen.name: view}, screen.name
        return view

    async def _replace_all(self, screen: ScreenInfo) -> View:
        """Show a new screen in place of all others."""
        async with self._opening:
            view = self.create_first(screen)
            await self.query_one("#views").remove_children()
            await self.query_one("#views").mount(view)
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
            while view.is_offscreen:
                await asyncio.sleep(_SECONDS_BETWEEN_SCREENS)
                if not (view.busy or self.is_in_use):
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
            if (focus := view.first_focus()) is not None:
                focus.focus()
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

    # Other recordings

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
        """Show which match the cursor is on."""
        self.set_status(*self._status)
