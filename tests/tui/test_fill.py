"""The other screens are filled while no key is pressed, and nobody sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.strip import Strip

from tests.tui.conftest import screen, settle
from tui import screens_app
from tui.app import Browser
from tui.session import Session
from tui.views import SCREENS
from tui.views.base import View
from tui.widgets.lines import Lines


@asynccontextmanager
async def filling(path: Path) -> AsyncIterator[tuple[Browser, Pilot[int]]]:
    with Session.open(path) as session:
        app = Browser(session, ahead=True)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            yield app, pilot


async def filled(app: Browser, pilot: Pilot[int]) -> None:
    while not app.filled:
        await asyncio.sleep(0.01)
    await settle(pilot)


async def test_every_screen_is_there_before_its_key_is_pressed(program: Path) -> None:
    async with filling(program) as (app, pilot):
        await settle(pilot)
        before = screen(pilot)
        await filled(app, pilot)
        assert screen(pilot) == before
        assert set(app._views) == {one.name for one in SCREENS}
        assert [view for view in app._views.values() if view.display] == [app.current]
        focused = app.focused
        assert focused is not None
        assert focused in app.current.walk_children()


async def test_a_filled_screen_is_the_same_as_one_that_is_read_when_it_is_opened(program: Path) -> None:
    shown: dict[bool, list[str]] = {False: [], True: []}
    for ahead, screens in shown.items():
        with Session.open(program) as session:
            app = Browser(session, ahead=ahead)
            async with app.run_test(size=(120, 40)) as pilot:
                await settle(pilot)
                if ahead:
                    await filled(app, pilot)
                for key in "23456789":
                    await pilot.press(key)
                    await settle(pilot)
                    screens.append(screen(pilot))
    assert shown[False] == shown[True]


async def test_a_filled_screen_has_its_details_and_scroll_bars(program: Path) -> None:
    """So to show it is one layout: it was laid out as large as it will be."""
    async with filling(program) as (app, pilot):
        await filled(app, pilot)
        for key, name in (("7", "kernels"), ("4", "breaks"), ("9", "events")):
            panes = list(app._views[name].query(Lines))
            before = [(pane.count, pane.show_vertical_scrollbar) for pane in panes]
            assert all(count for count, _ in before), (name, before)
            await pilot.press(key)
            await settle(pilot)
            assert [(pane.count, pane.show_vertical_scrollbar) for pane in panes] == before


async def test_a_screen_is_left_once_two_looks_found_it_quiet(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message that asks for the detail of a row may be on its way at the first."""
    looks, counts = list[float](), list[int]()
    sleep, fill, leave = asyncio.sleep, View.fill_offscreen, View.leave_offscreen

    async def look(delay: float) -> None:
        looks.extend([delay] if delay == screens_app._SECONDS_BETWEEN_SCREENS else [])
        await sleep(delay)

    def begin(view: View) -> None:
        looks.clear()
        fill(view)

    def end(view: View, *, shown: bool) -> None:
        counts.append(len(looks))
        leave(view, shown=shown)

    monkeypatch.setattr(View, "fill_offscreen", begin)
    monkeypatch.setattr(View, "leave_offscreen", end)
    monkeypatch.setattr(asyncio, "sleep", look)
    async with filling(program) as (app, _):
        while not app.filled:
            await sleep(0.01)
    assert len(counts) == len(SCREENS) - 1
    assert min(counts) >= 2


async def test_only_the_pane_that_gets_the_focus_is_drawn_again(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others were drawn while no key was pressed. Its frame has another color now."""
    async with filling(program) as (app, pilot):
        await filled(app, pilot)
        drawn = set[Lines]()
        draw = Lines.render_line

        def seen(lines: Lines, y: int) -> Strip:
            drawn.add(lines)
            return draw(lines, y)

        monkeypatch.setattr(Lines, "render_line", seen)
        for key in "279":
            await pilot.press(key)
            await settle(pilot)
            assert drawn & set(app.current.query(Lines)) == {app.focused}


async def test_nothing_on_a_screen_that_is_being_filled_gets_the_focus(program: Path) -> None:
    async with filling(program) as (app, _):
        seen = set()
        while not app.filled:
            seen |= {view.NAME for view in app._views.values() if view.is_offscreen}
            assert set(app.screen.focus_chain) <= set(app.current.walk_children())
            await asyncio.sleep(0.01)
        assert "kernels" in seen


async def test_keys_that_are_pressed_meanwhile_open_their_screens(program: Path) -> None:
    async with filling(program) as (app, pilot):
        for key, name in zip("2734", ("compiles", "kernels", "code", "breaks"), strict=True):
            await pilot.press(key)
            assert name == app.current.NAME
            await pilot.pause(0.05)
        await settle(pilot)
        assert app.current.NAME == "breaks"
        shown = [view for view in app._views.values() if view.display and not view.is_offscreen]
        assert shown == [app.current]


async def test_a_screen_that_a_key_shows_while_it_is_filled_stays(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop may be blocked for so long that the key no longer counts as recent."""
    sleep, looks = asyncio.sleep, 0

    async def look(delay: float) -> None:
        nonlocal looks
        view = app._views.get("breaks")
        await sleep(delay)
        if delay == screens_app._SECONDS_BETWEEN_SCREENS and view is not None and view.is_offscreen:
            looks += 1
            if looks == 2:
                await app._switch("breaks")
                app._last_action = 0.0

    async with filling(program) as (app, pilot):
        monkeypatch.setattr(asyncio, "sleep", look)
        monkeypatch.setattr(View, "busy", False)
        while not app.filled:
            await sleep(0.01)
        await settle(pilot)
        assert looks == 2
        assert [view.NAME for view in app._views.values() if view.display] == ["breaks"]


async def test_nothing_is_filled_once_the_screens_are_gone(program: Path) -> None:
    """The application may be closed by another way than a key."""
    async with filling(program) as (app, pilot):
        await pilot.pause()
        await app.query("#views").remove()
        await app._fill_screens()
        assert not app.filled


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2, 0.5, 0.8])
async def test_the_browser_can_be_ended_meanwhile(program: Path, delay: float) -> None:
    async with filling(program) as (app, pilot):
        await pilot.pause(delay)
        await pilot.press("q")
    assert app.return_code == 0


async def test_what_is_damaged_is_told_as_often(program: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.dynadiag"
    damaged.write_bytes(program.read_bytes().replace(b"relu", b"\xff\xfe\xfd\xfc"))
    told = []
    for ahead in (False, True):
        with Session.open(damaged) as session:
            app = Browser(session, ahead=ahead)
            async with app.run_test(size=(120, 40), notifications=True) as pilot:
                await settle(pilot)
                if ahead:
                    await filled(app, pilot)
                told.append([message.message for message in app._notifications])
    assert told[0] == told[1]
