"""`fix` from inside: agreed to first, watched, stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.command_screen import CommandScreen
from tui.search_process import SearchCommand

_MAX_WAITS = 600  # of 0.05 s
# Stands for `dynadiag fix`.
FIX = """
import signal, sys
print("trying change 1 of 2", file=sys.stderr, flush=True)
if "hang" in sys.argv:
    try:
        signal.pause()
    except KeyboardInterrupt:
        sys.exit(130)
print("--- prog.py", "+++ prog.py", "-print(z)", sep="\\n")
"""


def _command(folder: Path, *arguments: str) -> SearchCommand:
    (folder / "fix.py").write_text(FIX)
    return SearchCommand("fix", (sys.executable, str(folder / "fix.py"), "-", "fix", *arguments), folder)


async def until(pilot: Pilot[int], text: str) -> None:
    """Wait until a text is on the screen."""
    for _ in range(_MAX_WAITS):
        if text in screen(pilot):
            break
        await pilot.pause(0.05)
    await settle(pilot)
    assert text in screen(pilot)


async def test_a_fix_is_agreed_to_and_its_patch_is_shown(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.search_process.search_command", lambda kind, run: _command(tmp_path))
    async with browsing(program) as pilot:
        await press(pilot, "F")
        assert "run this?" in screen(pilot)
        await press(pilot, "y")
        await until(pilot, "every root cause has a proved fix")
        assert "-print(z)" in screen(pilot)
        await press(pilot, "escape")
        assert not isinstance(pilot.app.screen, CommandScreen)


async def test_a_fix_that_runs_shows_its_phase_and_is_stopped(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.search_process.search_command", lambda kind, run: _command(tmp_path, "hang"))
    async with browsing(program) as pilot:
        await press(pilot, "F", "y")
        await until(pilot, "trying change 1 of 2")
        assert "● running" in screen(pilot)
        await press(pilot, "x")
        await until(pilot, "stopped")


async def test_a_program_that_is_not_here_is_not_fixed(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "F")
        assert isinstance(pilot.app, Browser)
        assert len(pilot.app.screen_stack) == 1


async def test_what_a_command_says_while_its_screen_is_closed_is_not_shown(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.search_process.search_command", lambda kind, run: _command(tmp_path, "hang"))
    async with browsing(program) as pilot:
        await press(pilot, "F", "y")
        await until(pilot, "trying change 1 of 2")
        found = pilot.app.screen
        assert isinstance(found, CommandScreen)
        with monkeypatch.context() as closing:
            closing.setattr(CommandScreen, "children", ())
            closing.setattr(CommandScreen, "lines", property(lambda _: pytest.fail("they are gone")))
            found._refresh()
        await press(pilot, "escape")
        assert not isinstance(pilot.app.screen, CommandScreen)


async def test_a_command_is_said_to_run_at_once(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the command says something first, or a second has passed."""
    for later in ("_refresh_soon", "_tick"):
        monkeypatch.setattr(CommandScreen, later, lambda _: None)
    async with browsing(program) as pilot:
        await pilot.app.push_screen(CommandScreen(_command(tmp_path, "hang")))
        await settle(pilot)
        assert "● running" in screen(pilot)
