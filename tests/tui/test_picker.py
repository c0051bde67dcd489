"""The list of recordings: the newest first, one is opened, one is deleted."""

from __future__ import annotations

import os
from pathlib import Path

from dynadiag.render.recordings import list_recordings
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.location import Location
from tui.picker import Picker, age_text
from tui.widgets.prompt import Prompt


def recordings(folder: Path) -> list[Path]:
    """Two recordings and a damaged one, the first the newest."""
    folder.mkdir()
    bad = folder / "bad.dynadiag"
    bad.write_bytes(b"SQLite format 3\x00 and no more")
    found = [
        build.recording(folder, build.program(), "whole"),
        build.recording(folder, [*build.run_events("fail.py"), *build.end_events(3)], "failed"),
        bad,
    ]
    for age, path in enumerate(found):
        os.utime(path, (1e9 - age, 1e9 - age))
    return found


def test_a_recording_is_listed_with_its_program_and_what_came_of_it(tmp_path: Path) -> None:
    whole, failed, bad = list_recordings([recordings(tmp_path / "state")[0].parent, tmp_path / "state"])
    assert (whole.program, whole.verdict, whole.good) == ("prog.py", "broke once, recompiled once", True)
    assert (failed.program, failed.verdict, failed.good) == ("fail.py", "exit code 3, nothing compiled", False)
    assert bad.verdict.startswith("cannot be read: ")
    assert (bad.good, age_text(7200), age_text(59)) == (None, "2 hours", "just now")


def test_a_program_that_a_signal_ended_has_no_exit_code(tmp_path: Path) -> None:
    build.recording(tmp_path, [*build.run_events("p.py"), *build.end_events(-2)], "interrupted")
    (found,) = list_recordings([tmp_path])
    assert (found.verdict, found.good) == ("signal 2, nothing compiled", False)


def test_a_search_is_listed_with_its_answer(tmp_path: Path) -> None:
    for document in ({"verdict": "fails_uncompiled"}, None):
        path = build.recording(tmp_path, build.search_events(0, document), "found" if document else "stopped")
        os.utime(path, (1e9 + bool(document), 1e9 + bool(document)))
    found, stopped = list_recordings([tmp_path])
    assert found.verdict == "bisect: fails uncompiled, 2 trials"
    assert stopped.verdict == "bisect: no answer, 2 trials"


async def test_the_list_says_what_enter_does(tmp_path: Path) -> None:
    whole, *_ = recordings(tmp_path / "state")
    async with browsing(whole, folder=whole.parent) as pilot:
        for key, verb in (("O", "opens"), ("C", "compares")):
            await press(pilot, key)
            assert f"enter {verb}, f filters" in screen(pilot)
            await press(pilot, "escape")


async def test_another_recording_is_opened_from_the_start(tmp_path: Path) -> None:
    whole, *_ = recordings(tmp_path / "state")
    async with browsing(whole, folder=whole.parent) as pilot:
        await press(pilot, "4", "O")
        text = screen(pilot)
        assert text.index("prog.py") < text.index("fail.py") < text.index("bad.dynadiag")
        await press(pilot, "j", "enter")
        assert "ended with exit code 3" in screen(pilot)
        assert "Overview" in screen(pilot).splitlines()[0]
        await press(pilot, "4")
        assert "nothing was compiled" in screen(pilot)


async def test_a_question_of_the_recording_before_is_left(tmp_path: Path) -> None:
    whole, *_ = recordings(tmp_path / "state")
    async with browsing(whole, folder=whole.parent) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        await press(pilot, "0", "r")  # the search asks for a text
        await app._replace_views(Location("overview"))  # the recording that was asked for before has been read
        await press(pilot, "enter")
        assert app.is_running
        assert not app.query_one(Prompt).has_class("open")


async def test_recordings_stay_open_beside_each_other(tmp_path: Path) -> None:
    whole, failed, _ = recordings(tmp_path / "state")
    async with browsing(whole, folder=whole.parent) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        await press(pilot, "4", "O", "j", "enter")
        assert app.session.path == failed
        assert "2 of 2" in screen(pilot)
        await press(pilot, "backspace")
        assert (app.session.path, app.current.NAME) == (whole, "breaks")
        await press(pilot, "greater_than_sign", "R")
        assert (app.session.path, app.current.NAME) == (failed, "ranks")
        text = screen(pilot)
        assert "prog.py:8  1 time on whole, not on failed" in text
        await press(pilot, "O", "g", "enter")  # one that is open is not opened twice
        assert len(app.paths) == 2
        assert app.session.path == whole


async def test_a_recording_is_deleted_only_after_a_question(tmp_path: Path) -> None:
    whole, failed, _ = recordings(tmp_path / "state")
    async with browsing(whole, folder=whole.parent) as pilot:
        await press(pilot, "O", "j", "D")
        assert "delete this?" in screen(pilot)
        await press(pilot, "n")
        assert failed.exists()
        await press(pilot, "D", "y")
        await pilot.app.workers.wait_for_complete()
        await settle(pilot)
        assert not failed.exists()
        assert "fail.py" not in screen(pilot)


async def test_a_browser_that_starts_with_the_list_ends_with_q_and_shows_the_newest_after_escape(
    tmp_path: Path,
) -> None:
    whole, *_ = recordings(tmp_path / "state")
    async with browsing(whole, folder=whole.parent, pick=True) as pilot:
        assert "recordings, the newest first: 3" in screen(pilot)
        await press(pilot, "escape")
        assert "Where the time went" in screen(pilot)
        await press(pilot, "O", "q")
        assert isinstance(pilot.app, Browser)
        assert pilot.app.is_running
    async with browsing(whole, folder=whole.parent, pick=True) as pilot:
        await pilot.press("q")
        assert pilot.app.return_code == 0


async def test_a_list_that_is_closed_before_it_is_read_is_no_error(tmp_path: Path) -> None:
    whole, *_ = recordings(tmp_path / "state")
    async with browsing(whole, folder=tmp_path / "state") as pilot:
        await press(pilot, "O")
        shown = pilot.app.screen
        assert isinstance(shown, Picker)
        await shown.dismiss()
        shown.on_fetching_fetched(shown.Fetched("list", shown._serial, []))
        assert pilot.app.is_running
