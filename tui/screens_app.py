"""The screens of the application: which there are, their tabs, and which one is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tui.recording_app import RecordingApp
from tui.session import Session
from tui.views import RANKS, SCREENS, ScreenInfo, View, import_screens, screen_named
from tui.widgets.tabs import Tab, Tabs

if TYPE_CHECKING:
    from tui.command_process import CommandProcess
    from tui.views.trials import TrialsView


_SECONDS_BETWEEN_SCREENS = 0.1  # between two that are created while nothing happens


class ScreensApp(RecordingApp):
    """Creates a screen when it is shown first, or while no key is pressed, and switches from one to another."""

    def __init__(self, session: Session, paths: Sequence[Path] = (), rank: int = 0, folder: Path | None = None) -> None:
        super().__init__(session, paths, rank, folder)
        self._current_name = ""
        self._views: dict[str, View] = {}
        self._opening = asyncio.Lock()  # held while a screen is created
        self._ahead = False  # whether the other screens are filled while no key is pressed
        self.filled = False  # whether the other screens are there

    @property
    def busy(self) -> bool:
        """Whether something is being read."""
        return self.reading > 0 or any(view.busy for view in self._views.values())

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

    def search_changed(self, search: CommandProcess) -> bool:
        view = self._views.get("trials")
        return view is not None and cast("TrialsView", view).search_changed(search)
