"""Every screen with nothing in it, with one row, with a filter that matches nothing, and while it still reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.geometry import Region

from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.dialog import Choice, Confirm
from tui.help import HelpScreen
from tui.session import Session
from tui.styled_text import line
from tui.views import SCREENS, screen_named
from tui.widgets.lines import FilterableLines, Lines

KEYS = ("j", "G", "ctrl+d", "h", "n", "s", "v", "enter")
CONTENTS = {
    "nothing": [*build.run_events(), *build.end_events()],
    "one compile": [*build.run_events(), *build.compile_events("0/0"), *build.end_events()],
}


@pytest.mark.parametrize("contents", CONTENTS)
async def test_every_pane_bears_a_search_and_every_key(contents: str, tmp_path: Path) -> None:
    path = build.recording(tmp_path, CONTENTS[contents])
    async with browsing(path) as pilot:
        assert isinstance(pilot.app, Browser)
        for place in SCREENS:
            await press(pilot, place.key)
            for pane in [one for one in pilot.app.current.query(Lines) if one.display]:
                pane.focus()
                pane.search("x")
                await pilot.press(*KEYS)
                await settle(pilot)
                assert pilot.app.current.NAME in {one.name for one in SCREENS}
                await pilot.app.action_view(place.name)


async def test_a_search_and_a_filter_that_match_nothing(program: Path) -> None:
    async with browsing(program) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        for place in SCREENS:
            await app.action_view(place.name)
            await settle(pilot)
            for pane in [one for one in app.current.query(FilterableLines) if one.display]:
                pane.focus()
                pane.set_filter("zebra")
                assert pane.count == 0 or pane.filter == "zebra"
                pane.search("x")
                await press(pilot, "n", "j", "enter", "escape")


@pytest.mark.parametrize("place", [place.name for place in SCREENS])
async def test_keys_while_it_reads(place: str, program: Path) -> None:
    with Session.open(program) as session:
        app = Browser(session)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await app.action_view(place)  # the overview reads, and this screen has only begun to
            for pane in list(app.current.query(Lines)):
                pane.search("x")
            await pilot.press("j", "G", "enter", "n")
            await settle(pilot)
            assert app.is_running


async def test_an_empty_pane_bears_a_search(tmp_path: Path) -> None:
    """As users type it."""
    async with browsing(build.recording(tmp_path, CONTENTS["nothing"])) as pilot:
        await press(pilot, "4", "slash", "x", "enter")
        assert "not found" in screen(pilot)


async def test_a_dialog_that_is_closed_twice_is_closed_once(program: Path) -> None:
    async with browsing(program) as pilot:
        for key in ("question_mark", "ctrl+p", "colon"):
            await press(pilot, key)
            shown = pilot.app.screen
            assert len(pilot.app.screen_stack) == 2
            assert isinstance(shown, HelpScreen) == (key == "question_mark")
            shown.dismiss()
            shown.dismiss()
            await settle(pilot)
            assert len(pilot.app.screen_stack) == 1


@pytest.mark.parametrize("key", ["question_mark", "colon"])
async def test_a_dialog_under_another_one_is_not_closed(key: str, program: Path) -> None:
    """Its own key may have waited while the other dialog came, as a question does that follows a reading."""
    async with browsing(program) as pilot:
        await press(pilot, key)
        below = pilot.app.screen
        over = Confirm(Choice(True, [line(("really?", ""))]))
        await pilot.app.push_screen(over)
        below.dismiss()
        below.dismiss()
        await settle(pilot)
        assert pilot.app.screen is over
        await press(pilot, "escape")
        assert pilot.app.screen is below
        await press(pilot, "escape")
        assert len(pilot.app.screen_stack) == 1


async def test_a_prompt_whose_dialog_was_closed_asks_nothing(program: Path) -> None:
    async with browsing(program) as pilot:
        assert isinstance(pilot.app, Browser)
        await press(pilot, "question_mark")
        prompt = await pilot.app.prompt()
        shown = pilot.app.screen
        assert isinstance(shown, HelpScreen)
        await shown.dismiss()
        await prompt.ask("filter: ", "", lambda _: pytest.fail("nobody answered"))
        assert not prompt.has_class("open")


@pytest.mark.parametrize("key", ["1", "4", "9"])
async def test_the_cursor_is_on_the_screen_after_a_resize(key: str, program: Path) -> None:
    async with browsing(program, (200, 60)) as pilot:
        await press(pilot, key, "G")
        lines = pilot.app.focused
        assert isinstance(lines, Lines)
        before = lines.text_of(lines.cursor).split()[:2]
        for size in ((60, 12), (120, 16)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            top = int(lines.scroll_y)
            assert top <= lines.cursor < top + lines.page_height, size
        if key == "1":
            assert lines.text_of(lines.cursor).split()[:2] == before


async def test_a_recording_that_grows_while_a_screen_comes_or_goes_is_no_error(program: Path) -> None:
    """Widgets in a row of widgets come after it, and go before it."""
    async with browsing(program) as pilot:
        view = screen_named("code").create()
        waiting = pilot.app.query_one("#views").mount(view)
        while not view.is_mounted:
            view.load_if_open()
            await asyncio.sleep(0)
        await waiting
        assert view.is_open
        gone = asyncio.ensure_future(view.remove())
        while not gone.done():
            view.load_if_open()
            await asyncio.sleep(0)
        assert not view.is_open
        assert pilot.app.is_running


async def test_lines_that_were_removed_are_drawn_empty(program: Path) -> None:
    """By the screen under a dialog, when another recording has been opened."""
    async with browsing(program) as pilot:
        await press(pilot, "5")
        lines = pilot.app.focused
        assert isinstance(lines, Lines)
        await lines.remove()
        assert [strip.text for strip in lines.render_lines(Region(0, 0, 3, 2))] == ["   ", "   "]
