"""Searches that are started in the browser: agreed to first, watched, stopped, resumed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynadiag.errors import DynadiagError
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tests.tui.test_command_screen import until
from tui.app import Browser
from tui.command_process import Command, CommandProcess, program_command
from tui.command_screen import CommandScreen
from tui.session import Session
from tui.views.trials import TrialsView
from tui.widgets.code_pane import CodePane

# Stands for `dynadiag bisect`: the same arguments and lines. At its end it may put a recording in another's place.
SEARCH = """
import os, signal, sys, time
arguments = sys.argv[3:]
print("trial 1: as written: same (1.5 s)", file=sys.stderr, flush=True)
if "hang" in arguments:
    try:
        signal.pause()
    except KeyboardInterrupt:
        if "loud" in arguments:
            print("interrupted\\n" * 100_000, file=sys.stderr, flush=True)
        time.sleep(0.3)  # as putting away what was tried takes its time
        while "waits" in arguments and not os.path.exists("go"):
            time.sleep(0.01)
        open("kept", "w").close()
        sys.exit(130)
while "waits" in arguments and not os.path.exists("go"):
    time.sleep(0.01)
print("trial 2: lowering: pass (0.5 s)", file=sys.stderr, flush=True)
print("found: lowering relu")
if "moves" in arguments:
    os.replace(*arguments[-2:])
"""
CULPRIT = {"class": "lowering", "name": "relu", "compile_id": "0/0", "file": build.FILE, "line": 7}


def _plan(folder: Path, *arguments: str) -> Command:
    script = folder / "search.py"
    script.write_text(SEARCH)
    return Command("bisect", (sys.executable, str(script), "-", "bisect", *arguments), folder)


def _moving(folder: Path, made: Path, *arguments: str) -> Command:
    """A search that has found a culprit, and whose recording is `made` at its end."""
    whole = build.recording(folder, build.search_events(0, {"verdict": "found", "culprits": [CULPRIT]}), "whole")
    return _plan(folder, *arguments, "moves", str(whole), str(made))


def _plans(monkeypatch: pytest.MonkeyPatch, plan: Command) -> None:
    monkeypatch.setattr("tui.command_process.program_command", lambda *_, **__: plan)


async def _begun(pilot: Any) -> CommandProcess:
    """A bisection that was started, once it has told of a trial."""
    await press(pilot, "B", "y")
    await until(pilot, "trial 1: as written")
    assert isinstance(pilot.app.screen, CommandScreen)
    return pilot.app.screen.process


async def _open(pilot: Any, name: str) -> None:
    """Open another recording of the folder beside those that are open."""
    await press(pilot, "O")
    await pilot.app.workers.wait_for_complete()
    await press(pilot, "f", *name, "enter", "enter")
    await until(pilot, f"{name}.dynadiag · ")


async def _ended(pilot: Any, search: CommandProcess) -> None:
    while not search.finished:
        await pilot.pause(0.02)
    await pilot.app.workers.wait_for_complete()
    await settle(pilot)


async def _goes_to_the_culprit(pilot: Any) -> None:
    assert "culprit  lowering relu" in screen(pilot)
    view = pilot.app.current
    assert isinstance(view, TrialsView)
    view.head.focus()
    await press(pilot, "enter")
    pane = pilot.app.focused
    assert isinstance(pane, CodePane)
    assert pane.text_of(pane.cursor) == "    z = torch.relu(y)"


async def test_a_search_is_agreed_to_watched_and_leads_to_the_culprits_line(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made.dynadiag"
    _plans(monkeypatch, replace(_moving(tmp_path, made), output=made))
    async with browsing(program, folder=tmp_path) as pilot:
        await press(pilot, "8", "B")
        assert "run this?" in screen(pilot)
        await press(pilot, "y")
        await until(pilot, "found: lowering relu")
        await press(pilot, "enter")
        await until(pilot, "made.dynadiag · ")
        await _goes_to_the_culprit(pilot)


async def test_escape_runs_nothing(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _plans(monkeypatch, _plan(tmp_path, "prog.py"))
    async with browsing(program, folder=tmp_path) as pilot:
        await press(pilot, "M")  # from another screen
        assert "run this?" in screen(pilot)
        await press(pilot, "escape")
        assert isinstance(pilot.app, Browser)
        assert pilot.app.commands.running("search") is None


async def test_a_search_is_stopped_and_its_screen_says_so(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plans(monkeypatch, _plan(tmp_path, "hang", "waits"))
    async with browsing(program, folder=tmp_path) as pilot:
        search = await _begun(pilot)
        await press(pilot, "escape", "8")
        await until(pilot, "● running")
        assert " x stop " in screen(pilot).split("\n")[-1]
        await press(pilot, "x", "x")  # the second one would end it before it has put away what was tried
        await until(pilot, "● stopping")
        (tmp_path / "go").touch()
        await _ended(pilot, search)
        assert search.exit_code == 130
        await until(pilot, "stopped: its trials are kept, c resumes it  bisect: B shows it")
        assert " x stop " not in screen(pilot).split("\n")[-1]


@pytest.mark.parametrize("shown", ["first", "other"])
async def test_a_search_that_runs_ends_in_order_when_the_browser_is_left(
    shown: str, two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plans(monkeypatch, _plan(tmp_path, "hang"))
    async with browsing(two) as pilot:
        await _begun(pilot)
        await press(pilot, "escape")
        if shown == "other":
            await _open(pilot, shown)
        assert not (tmp_path / "kept").exists()
    assert (tmp_path / "kept").exists()


async def test_a_recording_that_a_search_goes_on_with_is_read_again_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`c` would have resumed it a second time."""
    path = build.recording(tmp_path, build.search_events(130))
    _plans(monkeypatch, replace(_moving(tmp_path, path, "waits"), resume=path))
    async with browsing(path, folder=tmp_path) as pilot:
        await press(pilot, "8", "c", "y")
        await until(pilot, "trial 1: as written")
        search = pilot.app.screen.process  # type: ignore[attr-defined]
        await press(pilot, "escape")
        await until(pilot, "● running")
        assert " c resume " not in screen(pilot).split("\n")[-1]
        (tmp_path / "go").touch()
        await _ended(pilot, search)
        await _goes_to_the_culprit(pilot)


def test_what_would_be_run_is_the_recorded_program_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "prog.py").touch()
    events = build.run_events()
    events[0][0]["dynadiag_run"].update(cwd=str(tmp_path), argv=["prog.py", "--size", "4"])
    with Session.open(build.recording(tmp_path, [*events, *build.end_events()])) as session:
        plan = program_command("bisect", session.run)
    assert plan.text == "dynadiag bisect prog.py --size 4"
    assert plan.folder == tmp_path


@pytest.mark.parametrize("target", ["", "--output", "gone.py"])
def test_a_recording_that_names_no_program_here_is_refused(target: str, tmp_path: Path) -> None:
    events = build.run_events(target)
    events[0][0]["dynadiag_run"].update(cwd=str(tmp_path))
    with (
        Session.open(build.recording(tmp_path, [*events, *build.end_events()])) as session,
        pytest.raises(DynadiagError),
    ):
        program_command("bisect", session.run)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """The first of two recordings in a folder; the other one is of a search that was stopped."""
    build.recording(tmp_path, build.search_events(130), "other")
    return build.recording(tmp_path, build.program(), "first")


async def test_one_search_runs_at_a_time_and_where_it_runs_is_told(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plans(monkeypatch, _plan(tmp_path, "waits"))
    async with browsing(two) as pilot:
        search = await _begun(pilot)
        await press(pilot, "escape")
        await _open(pilot, "other")
        await press(pilot, "8")
        assert "stopped: its trials are kept" in screen(pilot)
        for key in "BMc":
            await press(pilot, key)
            assert "bisect runs on first.dynadiag" in screen(pilot)
            await press(pilot, "escape")
        await press(pilot, "x")
        assert "the search on first.dynadiag runs" in screen(pilot)
        assert search.running
        (tmp_path / "go").touch()
        await _ended(pilot, search)
        await until(pilot, "bisect of first.dynadiag: found")


async def test_what_a_search_says_while_the_browser_is_left_is_still_read(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that nobody reads would hold it up before it has put away what was tried."""
    _plans(monkeypatch, _plan(tmp_path, "hang", "loud"))
    async with browsing(program, folder=tmp_path) as pilot:
        await _begun(pilot)
    assert (tmp_path / "kept").exists()
