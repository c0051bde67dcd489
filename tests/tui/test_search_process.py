"""Searches that are started in the browser: agreed to first, watched, stopped."""

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
from tui.session import Session
from tui.views.trials import TrialsView
from tui.widgets.code_pane import CodePane

# Stands for `dynadiag bisect`: the same arguments, the same lines, the same document.
SEARCH = f"""
import json, os, signal, sys, time
arguments = sys.argv[3:]
document = arguments[arguments.index("--json") + 1]
print("trial 1: as written: same (1.5 s)", file=sys.stderr, flush=True)
if "hang" in arguments:
    try:
        signal.pause()
    except KeyboardInterrupt:
        if "loud" in arguments:
            print("interrupted\\n" * 100_000, file=sys.stderr, flush=True)
        time.sleep(0.3)  # as putting away what was tried takes its time
        open("kept", "w").close()
        sys.exit(130)
if "waits" in arguments or "goes on" in arguments:
    while not os.path.exists("go"):
        time.sleep(0.01)
if "goes on" in arguments:
    os.replace(*arguments[-2:])
print("trial 2: lowering: pass (0.5 s)", file=sys.stderr, flush=True)
print("found: lowering relu")
culprit = {{"class": "lowering", "name": "relu", "compile_id": "0/0", "file": {build.FILE!r}, "line": 7}}
open(document, "w").write(json.dumps({{"verdict": "found", "culprits": [culprit]}}))
print(arguments[-1], file=sys.stderr, flush=True)
"""
CULPRIT = {"class": "lowering", "name": "relu", "compile_id": "0/0", "file": build.FILE, "line": 7}


def _plan(folder: Path, *arguments: str) -> Command:
    script = folder / "search.py"
    script.write_text(SEARCH)
    return Command("bisect", (sys.executable, str(script), "-", "bisect", *arguments), folder)


def _view(app: object) -> TrialsView:
    assert isinstance(app, Browser)
    assert isinstance(app.current, TrialsView)
    return app.current


async def _begun(pilot: Any) -> CommandProcess:
    """A bisection that was started, once it has told of a trial."""
    await press(pilot, "8", "B", "y")
    search = _view(pilot.app).search
    assert search is not None
    while not search.trials:
        await pilot.pause(0.02)
    return search


async def _open(pilot: Any, name: str) -> None:
    """Open another recording of the folder beside those that are open."""
    await press(pilot, "O")
    await pilot.app.workers.wait_for_complete()
    await press(pilot, "f", *name, "enter", "enter")
    await until(pilot, f"{name}.dynadiag · ")


async def _ended(pilot: object, search: CommandProcess) -> None:
    while search.exit_code is None:
        await pilot.pause(0.02)  # type: ignore[attr-defined]
    await settle(pilot)  # type: ignore[arg-type]


async def test_a_search_is_agreed_to_watched_and_leads_to_the_culprits_line(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: _plan(tmp_path, "prog.py"))
    async with browsing(program) as pilot:
        await press(pilot, "8", "B")
        assert "run this?" in screen(pilot)
        await press(pilot, "y")
        view = _view(pilot.app)
        assert view.search is not None
        await _ended(pilot, view.search)
        text = screen(pilot)
        assert "as written" in text
        assert "culprit  lowering relu" in text
        view.head.focus()
        view.head.move_to(next(number for number, item in enumerate(view.head.lines) if item.target))
        await press(pilot, "enter")
        pane = pilot.app.focused
        assert isinstance(pane, CodePane)
        assert pane.text_of(pane.cursor) == "    z = torch.relu(y)"


async def test_escape_runs_nothing(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: _plan(tmp_path, "prog.py"))
    async with browsing(program) as pilot:
        await press(pilot, "M")  # from another screen
        assert "run this?" in screen(pilot)
        await press(pilot, "escape")
        assert _view(pilot.app).search is None


async def test_a_search_is_stopped(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: _plan(tmp_path, "hang"))
    async with browsing(program) as pilot:
        search = await _begun(pilot)
        assert " x stop " in screen(pilot).split("\n")[-1]
        await press(pilot, "x", "x")  # the second one would end it before it has put away what was tried
        assert "● stopping" in screen(pilot)
        await _ended(pilot, search)
        assert search.exit_code == 130
        assert "stopped" in screen(pilot)
        assert " x stop " not in screen(pilot).split("\n")[-1]


@pytest.mark.parametrize("shown", ["first", "other"])
async def test_a_search_that_runs_ends_in_order_when_the_browser_is_left(
    shown: str, two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: _plan(tmp_path, "hang"))
    async with browsing(two) as pilot:
        await _begun(pilot)
        if shown == "other":
            await _open(pilot, shown)
        assert not (tmp_path / "kept").exists()
    assert (tmp_path / "kept").exists()


async def test_a_search_that_is_gone_on_with_shows_what_it_tried_before_and_then_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build.recording(tmp_path, build.search_events(130))
    whole = build.recording(tmp_path, build.search_events(0, {"verdict": "found", "culprits": [CULPRIT]}), "whole")
    plan = replace(_plan(tmp_path, "prog.py", "goes on", str(whole), str(path)), resume=path)
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: plan)
    async with browsing(path) as pilot:
        await press(pilot, "8", "c", "y")
        view = _view(pilot.app)
        assert view.search is not None
        while not view.search.trials:
            await pilot.pause(0.02)
        await press(pilot)
        assert [row.cells[0] for row in view.table.rows[:3]] == ["1", "2", "1"]
        (tmp_path / "go").touch()
        await _ended(pilot, view.search)
        await pilot.app.workers.wait_for_complete()
        await press(pilot, "enter")
        pane = pilot.app.focused
        assert isinstance(pane, CodePane)
        assert pane.text_of(pane.cursor) == "    z = torch.relu(y)"


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


async def test_a_search_that_goes_on_while_its_screen_is_closed_is_not_drawn(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: _plan(tmp_path, "hang"))
    async with browsing(program) as pilot:
        search = await _begun(pilot)
        view = _view(pilot.app)
        with monkeypatch.context() as closing:
            closing.setattr(TrialsView, "children", ())
            closing.setattr(TrialsView, "head", property(lambda _: pytest.fail("it is gone")))
            view._tick()
            view._refresh()
            assert not view.search_changed(search)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """The first of two recordings in a folder; the other one is of a search that was stopped."""
    build.recording(tmp_path, build.search_events(130), "other")
    return build.recording(tmp_path, build.program(), "first")


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file whose creation ends a search. Until then it waits."""
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: _plan(tmp_path, "waits"))
    return tmp_path / "go"


async def test_a_search_goes_on_while_another_recording_is_open_and_is_shown_again(two: Path, waiting: Path) -> None:
    async with browsing(two) as pilot:
        search = await _begun(pilot)
        await _open(pilot, "other")
        await press(pilot, "8")
        assert "stopped: its trials are kept" in screen(pilot)
        assert search.running
        await press(pilot, "less_than_sign")
        await until(pilot, "● running")
        assert "as written" in screen(pilot)
        await press(pilot, "r")
        assert "● running" in screen(pilot)
        waiting.touch()
        await _ended(pilot, search)
        assert "culprit  lowering relu" in screen(pilot)


async def test_the_end_of_a_search_is_told_while_another_recording_is_open(two: Path, waiting: Path) -> None:
    async with browsing(two) as pilot:
        search = await _begun(pilot)
        await _open(pilot, "other")
        waiting.touch()
        await _ended(pilot, search)
        await until(pilot, "bisect of first.dynadiag: found")
        await press(pilot, "less_than_sign", "8")
        await until(pilot, "culprit  lowering relu")


async def test_one_search_runs_at_a_time_and_where_it_runs_is_told(two: Path, waiting: Path) -> None:
    async with browsing(two) as pilot:
        search = await _begun(pilot)
        await press(pilot, "M")
        assert "a search is running: x stops it first" in screen(pilot)
        await _open(pilot, "other")
        for key in "BMxc":
            pilot.app.clear_notifications()
            await press(pilot, "8", key)
            assert "a search runs on first.dynadiag" in screen(pilot)
            assert len(pilot.app.screen_stack) == 1
        assert search.running


async def test_a_recording_that_a_search_goes_on_with_shows_it_where_it_is_opened(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that the search was stopped, and `c` would have resumed it a second time."""
    other = tmp_path / "other.dynadiag"
    whole = build.recording(tmp_path, build.search_events(0, {"verdict": "found", "culprits": [CULPRIT]}), "whole")
    plan = replace(_plan(tmp_path, "prog.py", "goes on", str(whole), str(other)), resume=other)
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: plan)
    async with browsing(two) as pilot:
        search = await _begun(pilot)
        await _open(pilot, "other")
        await press(pilot, "8")
        assert "● running" in screen(pilot)
        await press(pilot, "c")
        assert "a search is running" in screen(pilot)
        (tmp_path / "go").touch()
        await _ended(pilot, search)
        await pilot.app.workers.wait_for_complete()
        await settle(pilot)
        assert "culprit  lowering relu" in screen(pilot)
        assert "bisect of first.dynadiag: found" in screen(pilot)


async def test_what_a_search_says_while_the_browser_is_left_is_still_read(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that nobody reads would hold it up before it has put away what was tried."""
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: _plan(tmp_path, "hang", "loud"))
    async with browsing(program) as pilot:
        await _begun(pilot)
    assert (tmp_path / "kept").exists()


async def test_a_search_that_was_killed_is_not_shown_as_running_where_its_recording_is_open(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(_plan(tmp_path, "hang"), resume=tmp_path / "other.dynadiag")
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: plan)
    async with browsing(two) as pilot:
        search = await _begun(pilot)
        await _open(pilot, "other")
        await press(pilot, "8")
        assert "● running" in screen(pilot)
        assert search._process is not None
        search._process.kill()
        await _ended(pilot, search)
        await settle(pilot)
        assert "● running" not in screen(pilot)
        assert "stopped: its trials are kept, c resumes it" in screen(pilot)


async def test_a_search_that_is_asked_for_while_another_recording_is_read_is_of_that_one(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the options of the recording that was shown before."""
    options = build.search_events(130, options=["--accuracy"])
    build.recording(tmp_path, options, "third")
    asked: list[tuple[str, ...]] = []

    def command(_kind: str, _run: object, given: tuple[str, ...] = (), *_: object) -> Command:
        asked.append(given)
        return _plan(tmp_path, "prog.py")

    monkeypatch.setattr("tui.views.trials.program_command", command)
    async with browsing(tmp_path / "third.dynadiag") as pilot:
        await _open(pilot, "first")
        await press(pilot, "8", "less_than_sign")
        await until(pilot, "third.dynadiag · ")
        assert isinstance(pilot.app, Browser)
        load = TrialsView.load
        with monkeypatch.context() as slow:
            slow.setattr(TrialsView, "load", lambda _: None)
            await press(pilot, "greater_than_sign")
            await until(pilot, "first.dynadiag · ")
            await press(pilot, "B")
            assert not asked
        load(_view(pilot.app))
        await settle(pilot)
        assert asked == [(), ("--accuracy",)]
