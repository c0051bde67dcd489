"""The recording of a search, opened later: what it came to stands first, and it can be gone on with."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event
from typing import NoReturn

import pytest

from dynadiag.errors import UnreadableInput
from dynadiag.explanation.search import RecordedSearch, read_search, safe_options
from dynadiag.recording.reader import Recording
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.dialog import Confirm
from tui.session import Session
from tui.views.trials import TrialsView
from tui.widgets.code_pane import CodePane

CULPRIT = {"class": "lowering", "name": "relu", "compile_id": "0/0", "file": build.FILE, "line": 7}
FOUND = {
    "verdict": "found",
    "rungs": {"uncompiled": "pass", "inductor": "same", "triton": "not_run"},
    "failure": {"type": "wrong_result", "message": "output 0 differs"},
    "culprits": [CULPRIT],
    "trials": 24,
    "seconds": 28.1,
}


def _program_here(folder: Path, events: build.Events) -> build.Events:
    (folder / "prog.py").touch()
    events[0][0]["dynadiag_run"].update(cwd=str(folder), argv=["prog.py"])
    return events


async def test_its_overview_is_what_it_came_to(tmp_path: Path) -> None:
    path = build.recording(tmp_path, build.search_events(0, FOUND, ["--accuracy"]))
    async with browsing(path, (80, 24)) as pilot:
        text = screen(pilot)
        assert "bisect --accuracy" in text
        assert "found  24 trials in 28.1 s" in text
        assert "uncompiled✓  inductor✗" in text
        assert "triton" not in text
        assert "output 0 differs" in text
        assert "never imported" not in text
        await press(pilot, "enter")
        pane = pilot.app.focused
        assert isinstance(pane, CodePane)
        assert pane.text_of(pane.cursor) == "    z = torch.relu(y)"
        assert "record the program" in screen(pilot)


async def test_its_trials_have_the_verdict_above_them(tmp_path: Path) -> None:
    async with browsing(build.recording(tmp_path, build.search_events(0, FOUND))) as pilot:
        await press(pilot, "8")
        text = screen(pilot)
        assert "culprit  lowering relu" in text
        assert "inductor" in text
        await press(pilot, "c")
        assert "there is no stopped search" in screen(pilot)


async def test_the_trials_that_decide_are_marked_and_one_key_away(tmp_path: Path) -> None:
    candidates = [f'{{"rung": "inductor", "number": {number}}}' for number in (1, 0)]
    proved = ["with exactly it off the failure is gone", "with all else off it stays"]
    path = build.recording(tmp_path, build.search_events(0, {**FOUND, "reproduce": candidates, "confirmed": proved}))
    async with browsing(path) as pilot:
        await press(pilot, "8")
        assert isinstance(pilot.app, Browser)
        view = pilot.app.current
        assert isinstance(view, TrialsView)
        assert [item.text.split()[0] for item in view.head.lines[:2]] == ["found", "culprit"]
        assert [row.cells[1] for row in view.table.rows] == ["◆", "◆"]
        view.head.focus()
        await settle(pilot)
        places = [number for number, item in enumerate(view.head.lines) if item.text.startswith("proved")]
        for place, trial in zip(places, (1, 0), strict=True):
            view.head.move_to(place)
            await press(pilot, "enter")
            assert view.table.key == trial
            assert "the verdict rests on this trial" in screen(pilot)


async def test_one_that_was_stopped_is_gone_on_with(tmp_path: Path) -> None:
    events = build.search_events(130, options=["--accuracy", "-o", "/elsewhere", "--rungs", "eager,inductor"])
    path = build.recording(tmp_path, _program_here(tmp_path, events))
    async with browsing(path) as pilot:
        assert "c resumes it" in screen(pilot)
        await press(pilot, "8", "c")
        assert isinstance(pilot.app.screen, Confirm)
        text = " ".join(screen(pilot).split())
        assert "$ dynadiag bisect --accuracy --rungs eager,inductor --resume" in text
        await press(pilot, "escape")
        assert isinstance(pilot.app, Browser)
        assert isinstance(pilot.app.current, TrialsView)
        assert pilot.app.current.search is None


@pytest.mark.parametrize(("code", "first"), [(0, True), (1, False), (-signal.SIGTERM, True)])
async def test_a_program_that_ends_well_is_searched_for_calls_that_are_wrong(
    code: int, first: bool, tmp_path: Path
) -> None:
    events = _program_here(tmp_path, [*build.run_events(), *build.end_events(code)])
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "8", "B")
        assert ("bisect --accuracy" in screen(pilot)) is first
        await press(pilot, "a")
        assert ("bisect --accuracy" in screen(pilot)) is not first


async def test_a_repro_is_shown_and_opened_from_the_overview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repro = tmp_path / "repro.py"
    repro.write_text("assert False, 'the repro'\n")
    document = {"repro": str(repro), "nodes_before": 5, "nodes_after": 1}
    opened: list[Path] = []
    monkeypatch.setattr("tui.line_actions.edit_path", lambda _app, path, _line: opened.append(path))
    async with browsing(build.recording(tmp_path, build.search_events(0, document))) as pilot:
        assert "5 → 1 operation, enter" in screen(pilot)
        await press(pilot, "enter")
        assert opened == [repro]
        await press(pilot, "8", "shift+tab")
        assert "assert False, 'the repro'" in screen(pilot)
        await press(pilot, "tab")
        assert "trial 1" in screen(pilot)


async def test_a_repro_is_shown_also_where_its_screen_is_not_read_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repro, focused = tmp_path / "repro.py", Event()
    repro.write_text("assert False, 'the repro'\n")

    def read_late(recording: Recording, *, running: bool) -> RecordedSearch | None:
        focused.wait(30)
        return read_search(recording, running=running)

    monkeypatch.setattr("tui.views.trials.read_search", read_late)
    async with browsing(build.recording(tmp_path, build.search_events(0, {"repro": str(repro)}))) as pilot:
        await pilot.press("8", "shift+tab")
        assert "reading ..." in screen(pilot)
        focused.set()
        await settle(pilot)
        assert "assert False, 'the repro'" in screen(pilot)


@pytest.mark.parametrize("name", ["/etc/passwd", "gone.py", "/dev/zero"])
async def test_a_strangers_recording_opens_no_other_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.line_actions.edit_path", lambda *_: pytest.fail("it was opened"))
    async with browsing(build.recording(tmp_path, build.search_events(0, {"repro": name}))) as pilot:
        await press(pilot, "enter")
        assert "does not exist any more" in screen(pilot)
        await press(pilot, "8", "shift+tab")
        assert "root:" not in screen(pilot)


def test_options_that_write_somewhere_or_are_none_are_not_taken_over() -> None:
    sound = ["--accuracy", "--rungs", "eager", "--timeout", "9.5", "--repeat", "3"]
    assert safe_options([*sound, "--output", "x", "--timeout", "--force", 3, None, "prog.py"]) == tuple(sound)
    assert safe_options("--accuracy") == safe_options(None) == ()


@pytest.mark.parametrize("document", [[], {"culprits": 3, "rungs": [], "failure": "x", "repro": 1, "trials": "y"}])
async def test_a_strangers_verdict_is_not_believed(document: object, tmp_path: Path) -> None:
    path = build.recording(tmp_path, build.search_events(0, document))  # type: ignore[arg-type]
    async with browsing(path) as pilot:
        assert "found  2 trials" in screen(pilot)


async def test_a_search_through_releases_says_between_which(tmp_path: Path) -> None:
    document = {
        "rungs": {},
        "versions": {"2.11.0": "pass", "2.12.0": "different", "2.12.1": "same"},
        "last_good": "2.11.0",
        "first_bad": "2.12.1",
        "notes": ["2.12.0 fails in another way"],
    }
    async with browsing(build.recording(tmp_path, build.search_events(0, document))) as pilot:
        text = screen(pilot)
        assert "the failure came between torch 2.11.0 and 2.12.1" in text
        assert "versions 2.11.0✓  2.12.0≠  2.12.1✗" in text
        assert "note     2.12.0 fails in another way" in text
        assert "rungs" not in text
        assert "went between" not in text


async def test_trials_of_a_command_without_a_result_are_no_search_that_was_stopped(tmp_path: Path) -> None:
    """The recording of `fix` looks like this. The browser cannot resume it."""
    events = [*build.run_events(), *build.trial_events(0, "pass"), ({"dynadiag_exit": {"code": None}}, None)]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        assert "keeps no result in its recording" in screen(pilot)
        assert "resumes it" not in screen(pilot)


def test_a_program_that_was_recorded_is_no_search(program: Path) -> None:
    with Session.open(program) as session:
        assert read_search(session.recording) is None


@pytest.mark.parametrize("key", "234567")
async def test_an_empty_screen_of_a_search_says_where_its_trials_are(key: str, tmp_path: Path) -> None:
    path = build.recording(tmp_path, build.search_events(0, FOUND))
    async with browsing(path) as pilot:
        await press(pilot, key)
        assert "this is the recording of a search: 8 shows its trials" in " ".join(screen(pilot).split())


async def test_of_damaged_trials_an_empty_list_of_hits_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What answers a prompt runs outside of the workers, which report what they cannot read."""

    def damaged(_session: Session) -> NoReturn:
        raise UnreadableInput("damaged")

    async with browsing(build.recording(tmp_path, build.search_events(0, FOUND))) as pilot:
        monkeypatch.setattr(Recording, "trials", damaged)
        await press(pilot, "0", *"xyz", "enter")
        assert pilot.app.is_running


async def test_on_a_wide_screen_the_answer_of_a_search_has_the_height_of_the_screen(tmp_path: Path) -> None:
    """It had nine lines above an empty column, and the last of them were cut."""
    confirmed = [f"check {number}" for number in range(20)]
    culprit = {"class": "lowering", "name": "relu"}
    document = {"verdict": "found", "rung": "inductor", "culprits": [culprit], "confirmed": confirmed}
    path = build.recording(tmp_path, build.search_events(0, document))
    async with browsing(path, (200, 60)) as pilot:
        await press(pilot, "8")
        assert "check 19" in screen(pilot)
