"""The keys in the last line: those of what has the focus, each action once; a click is a press."""

from __future__ import annotations

from pathlib import Path

from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.widgets.keys import Keys


async def test_the_keys_are_those_of_the_screen(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "2")
        assert "v time line" in screen(pilot).splitlines()[-1]
        await press(pilot, "7")
        last = screen(pilot).splitlines()[-1]
        assert "c bytes" in last
        assert "time line" not in last
        assert last.count("? help") == 1


async def test_a_click_on_a_key_is_a_press_of_it(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "4")
        last = screen(pilot).splitlines()[-1]
        await pilot.click(Keys, offset=(last.index("back"), 0))
        await settle(pilot)
        assert isinstance(pilot.app, Browser)
        assert pilot.app.current.NAME == "overview"
