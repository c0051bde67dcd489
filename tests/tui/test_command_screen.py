"""Commands from inside: agreed to first, watched, stopped; they go on while other screens are shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.interpreters import warm
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.command_process import Command, CommandProcess
from tui.command_screen import CommandScreen
from tui.location import Location
from tui.widgets.styled_lines import StyledLines

_MAX_WAITS = 600  # of 0.05 s
# Stands for `dynadiag fix`.
FIX = """
import os, signal, subprocess, sys, time
print("trying change 1 of 2", file=sys.stderr, flush=True)
if "hang" in sys.argv:
    try:
        signal.pause()
    except KeyboardInterrupt:
        open("interrupted", "w").close()
        sys.exit(130)
if "floods" in sys.argv:
    try:
        while True:
            print("x" * 100, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        open("interrupted", "w").close()
        sys.exit(130)
if "waits" in sys.argv:
    while not os.path.exists("go"):
        time.sleep(0.01)
if "endless" in sys.argv:
    print("\\r" * (17 << 20))
if "daemon" in sys.argv:
    subprocess.Popen(["sleep", "30"])
if "wide" in sys.argv:
    print("-" * int(os.environ["COLUMNS"]))
print("--- prog.py", "+++ prog.py", "-print(z)", sep="\\n")
"""


def _command(folder: Path, *arguments: str, kind: str = "fix") -> Command:
    (folder / "fix.py").write_text(FIX)
    return Command(kind, (sys.executable, str(folder / "fix.py"), "-", kind, *arguments), folder)


@asynccontextmanager
async def fixing(
    program: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> AsyncIterator[Pilot[int]]:
    """The browser in which `fix` runs, as it was agreed to."""
    monkeypatch.setattr("tui.command_process.program_command", lambda *_: _command(folder, *arguments))
    async with browsing(program) as pilot:
        await press(pilot, "F", "y")
        yield pilot


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
    monkeypatch.setattr("tui.command_process.program_command", lambda *_: _command(tmp_path))
    async with browsing(program) as pilot:
        await press(pilot, "F")
        assert "run this?" in screen(pilot)
        await press(pilot, "y")
        await until(pilot, "every root cause has a proved fix")
        assert "-print(z)" in screen(pilot)
        await press(pilot, "escape")
        assert not isinstance(pilot.app.screen, CommandScreen)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_report_is_as_wide_as_the_screen_that_shows_it(
    size: tuple[int, int], program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was as wide as a report in a file, and wrapped a second time here."""
    monkeypatch.setattr("tui.command_process.recording_command", lambda kind, *_: _command(tmp_path, "wide", kind=kind))
    async with browsing(program, size) as pilot:
        await press(pilot, "7", "u", "y")
        await until(pilot, "the kernels were timed")
        shown = pilot.app.screen.query_one(StyledLines)
        (rule,) = [item.text for item in shown.lines if item.text.startswith("-----")]
        assert len(rule) == shown.columns


async def test_a_program_does_not_see_the_width_of_the_screen(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    async with fixing(program, tmp_path, monkeypatch, "wide") as pilot:
        await until(pilot, "KeyError: 'COLUMNS'")


async def test_a_fix_that_runs_shows_its_phase_and_is_stopped(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixing(program, tmp_path, monkeypatch, "hang") as pilot:
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
    async with fixing(program, tmp_path, monkeypatch, "hang") as pilot:
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
    for later in ("refresh_soon", "_tick"):
        monkeypatch.setattr(CommandScreen, later, lambda _: None)
    async with browsing(program) as pilot:
        process = CommandProcess(_command(tmp_path, "hang"), program, lambda: None)
        await pilot.app.push_screen(CommandScreen(process))
        await settle(pilot)
        assert "● running" in screen(pilot)


async def test_a_command_goes_on_and_its_key_shows_it_again(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixing(program, tmp_path, monkeypatch, "waits") as pilot:
        await until(pilot, "trying change 1 of 2")
        await press(pilot, "escape", "2", "F")  # no question this time
        assert "● running" in screen(pilot)
        await press(pilot, "escape")
        (tmp_path / "go").touch()
        await until(pilot, "fix: every root cause has a proved fix")
        await press(pilot, "F")
        assert "-print(z)" in screen(pilot)
        await press(pilot, "escape", "F")  # its end was seen: the next one is asked for
        assert "run this?" in screen(pilot)


async def test_a_command_of_another_recording_is_shown_as_that_and_its_end_only_there(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = build.recording(tmp_path, [*build.run_events("other.py"), *build.end_events()], "other")
    async with fixing(program, tmp_path, monkeypatch, "waits") as pilot:
        await until(pilot, "trying change 1 of 2")
        assert isinstance(pilot.app, Browser)
        pilot.app.screen.dismiss()
        pilot.app.go_to_in((other, Location("overview")))
        await until(pilot, "other.dynadiag · 2 of 2")
        await press(pilot, "F")
        assert "● running" in screen(pilot)
        assert "fix runs on run.dynadiag: one at a time" in " ".join(screen(pilot).split())
        await press(pilot, "escape")
        (tmp_path / "go").touch()
        await until(pilot, "fix of run.dynadiag: every root cause has a")
        await press(pilot, "F")
        assert "run this?" in screen(pilot)
        await press(pilot, "escape", "less_than_sign")
        await until(pilot, "run.dynadiag · 1 of 2")
        await press(pilot, "F")
        assert "-print(z)" in screen(pilot)


@pytest.mark.parametrize("what", ["hang", "floods"])
async def test_commands_are_stopped_when_the_browser_is_left(
    what: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixing(program, tmp_path, monkeypatch, what) as pilot:
        await until(pilot, "● running")
        await press(pilot, "escape")
        await pilot.press("q")
    assert (tmp_path / "interrupted").exists()


PROGRAM = """
import os, time, torch
torch.compile(torch.sin, backend="eager")(torch.ones(3))
print("compiled", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("what", ["endless", "daemon"])
async def test_an_endless_line_or_a_program_that_goes_on_does_not_hide_the_end(
    what: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command was said to run for ever: a line was longer than is kept, or what it started held the pipes open."""
    async with fixing(program, tmp_path, monkeypatch, what) as pilot:
        await until(pilot, "every root cause has a proved fix")
        assert isinstance(pilot.app.screen, CommandScreen)
        assert pilot.app.screen.process.report[-1] == "-print(z)"


async def test_a_program_is_run_again_and_followed_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(PROGRAM)
    (tmp_path / "go").touch()
    made = tmp_path / "first.dynadiag"
    command = [sys.executable, "-m", "dynadiag", "record", "-o", str(made), "prog.py"]
    with warm():
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "go").unlink()
    async with browsing(made, folder=tmp_path / "state") as pilot:
        with warm():
            await press(pilot, "X", "y")
            await until(pilot, "compiled")
        await press(pilot, "enter")
        await until(pilot, "● live")
        assert "1 compile" in screen(pilot)
        (tmp_path / "go").touch()
        await until(pilot, "explain: the program has ended")
        await until(pilot, "✓ ended with exit code 0")
        assert isinstance(pilot.app, Browser)
        assert pilot.app.session.path.parent == tmp_path / "state"
        assert pilot.app.paths[0] == made


async def test_a_page_is_written_and_no_file_replaced(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / f"{program.stem}.html"
    async with browsing(program) as pilot:
        await press(pilot, "P", "enter")
        await until(pilot, "the page is written")
        text = page.read_text()
        assert "<html" in text
        await press(pilot, "escape", "P", "enter")
        await until(pilot, "ended with exit code 2")  # it exists
        assert page.read_text() == text


async def test_only_a_function_is_compared(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "T")
        await until(pilot, "compare times one function")


async def test_kernels_are_read_again_once_they_are_timed(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(kind: str, recording: Path, *words: str) -> Command:
        assert words == ("--measure", "--trust")
        return _command(tmp_path, str(recording.absolute()), kind=kind)

    monkeypatch.setattr("tui.command_process.recording_command", command)
    async with browsing(program) as pilot:
        assert isinstance(pilot.app, Browser)
        before = pilot.app.session
        await press(pilot, "7", "u")
        assert "Trust whoever made it" in screen(pilot)
        await press(pilot, "y")
        await until(pilot, "the kernels were timed")
        assert pilot.app.session is not before


async def test_a_command_that_cannot_start_says_why(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = replace(_command(tmp_path), folder=tmp_path / "gone")
    monkeypatch.setattr("tui.command_process.program_command", lambda *_: command)
    async with browsing(program) as pilot:
        await press(pilot, "F", "y")
        await until(pilot, "ended with exit code 127")
        assert "No such file or directory" in screen(pilot)
