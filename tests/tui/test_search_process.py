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
        time.sleep(0.3)  # as putting away what was tried takes its time
        open("kept", "w").close()
        sys.exit(130)
if "goes on" in arguments:
    while not os.path.exists("go"):
        time.sleep(0.01)
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
        await press(pilot, "x")
        await _ended(pilot, search)
        assert search.exit_code == 130
        assert "stopped" in screen(pilot)


async def test_a_search_that_runs_ends_in_order_when_the_browser_is_left(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.views.trials.program_command", lambda kind, run, *_: _plan(tmp_path, "hang"))
    async with browsing(program) as pilot:
        await _begun(pilot)
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
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "8")
        assert isinstance(pilot.app, Browser)
        view = pilot.app.current
        assert isinstance(view, TrialsView)
        with monkeypatch.context() as closing:
            closing.setattr(TrialsView, "children", ())
            closing.setattr(TrialsView, "head", property(lambda _: pytest.fail("it is gone")))
            view.search = CommandProcess(Command("bisect", (), Path("/")), lambda: None)
            view._tick(view.search)
            view._refresh()
            view.search = None
