"""The user's own theme and keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dynadiag.errors import UnreadableInput
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.colors import THEMES, next_theme, palette_of
from tui.command_palette import all_binding_ids
from tui.settings_app import BrowserSettings, read_settings


def _write(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)


def _notices(pilot: Pilot[int]) -> str:
    return "\n".join(item.message for item in pilot.app._notifications)


async def test_a_theme_is_remembered_and_all_else_in_the_file_stays(program: Path, settings: Path) -> None:
    _write(settings, '{"keys": {"app.quit": "Q"}, "mine": 1}')
    async with browsing(program) as pilot:
        seen = [palette_of(pilot.app.theme)]
        for _ in THEMES[1:]:
            await press(pilot, "t")
            seen.append(palette_of(pilot.app.theme))
    assert tuple(seen) == THEMES
    assert json.loads(settings.read_text()) == {"keys": {"app.quit": "Q"}, "mine": 1, "theme": THEMES[-1]}
    async with browsing(program) as pilot:
        assert palette_of(pilot.app.theme) == THEMES[-1]
    assert next_theme(THEMES[-1]) == THEMES[0]


async def test_a_key_of_the_user_is_the_one_that_works_and_that_is_shown(program: Path, settings: Path) -> None:
    _write(settings, '{"keys": {"view.breaks": "V", "app.back": "u"}}')
    async with browsing(program, (160, 40)) as pilot:  # wide enough for the titles of the screens
        await press(pilot, "V")
        assert "Failed to trace builtin operator" in screen(pilot)
        head, *_, keys = screen(pilot).split("\n")
        assert " V Breaks" in head
        assert " u back" in keys
        await press(pilot, "u")
        assert "Where the time went" in screen(pilot)
        await press(pilot, "question_mark")
        assert " V                 Breaks" in screen(pilot)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "this is no JSON"),
        ("[]", "this is no JSON object"),
        ('{"theme": "pink"}', "it can be dark, light, terminal, color-blind"),
        ('{"keys": {"app.quit": 3}}', "keys has to be an object"),
    ],
)
async def test_settings_that_cannot_be_used_are_said_and_the_browser_goes_on(
    text: str, said: str, program: Path, settings: Path
) -> None:
    _write(settings, text)
    with pytest.raises(UnreadableInput, match=said):
        read_settings(settings)
    async with browsing(program) as pilot:
        assert said in _notices(pilot)
        await press(pilot, "4")
        assert "Failed to trace builtin operator" in screen(pilot)


async def test_a_key_of_an_action_that_is_not_there_is_said(program: Path, settings: Path) -> None:
    _write(settings, '{"keys": {"app.fly": "F", "code.zoom": "Z"}}')
    async with browsing(program) as pilot:
        await pilot.app.workers.wait_for_complete()
        await settle(pilot)
        assert "app.fly" in _notices(pilot)
        assert "code.zoom" not in _notices(pilot)
    assert {"app.quit", "lines.down", "code.zoom", "search.bisect", "guards.form"} <= all_binding_ids(Browser)


@pytest.mark.parametrize("keys", ["crtl+q", "j,pgdwn", "q q"])
async def test_a_key_that_no_terminal_sends_is_said(keys: str, program: Path, settings: Path) -> None:
    """The action had no key any more, and nobody was told."""
    good = {"app.back": "ctrl+u, shift+f3,>", "lines.down": "down,question_mark", "app.help": "ö"}
    _write(settings, json.dumps({"keys": {**good, "app.quit": keys}}))
    async with browsing(program) as pilot:
        await pilot.app.workers.wait_for_complete()
        await settle(pilot)
        assert f"no key is called {keys.rpartition(',')[2]}: write" in _notices(pilot)


def test_without_a_file_the_defaults_hold(settings: Path) -> None:
    assert read_settings(settings) == BrowserSettings("dark", {})
