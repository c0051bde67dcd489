"""A recording that is still written, that goes away, that turns out to be damaged."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import cast

import pytest
import zstandard
from textual.widgets import Input

from dynadiag.bisection.trial_log import TrialLog
from dynadiag.errors import UnreadableInput
from dynadiag.recording.journal import Journal
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Event
from dynadiag.trial.outcome import Outcome
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.views.events import EventRows


def _running(events: build.Events) -> build.Events:
    """The same, of a process that is alive: this one."""
    events[0][0]["dynadiag_run"].update(pid=os.getpid(), host=socket.gethostname())
    return events


def _append(path: Path, events: build.Events) -> None:
    journal = Journal.reopen(path)
    for metadata, payload in events:
        journal.append(metadata, payload)
    journal.close()


async def test_what_is_recorded_meanwhile_comes_to_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "live.dynadiag"
    build.journal(path, _running([*build.run_events(), *build.source_events(), *build.compile_events("0/0")]))
    async with browsing(path) as pilot:
        assert "still running" in screen(pilot)
        assert "live" in screen(pilot).splitlines()[-2]
        await press(pilot, "2", "j")
        _append(path, [*build.recompile_events("0/1", "4", "5"), *build.compile_events("0/1")])
        app = pilot.app
        assert isinstance(app, Browser)
        app.check_recording()
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert "0/1" in screen(pilot)
        await press(pilot, "1")
        assert "was 4, now 5" in screen(pilot)
    assert path.read_bytes().startswith(b"V")  # it stays the journal of the process that writes it


async def test_what_is_being_compiled_has_not_failed(tmp_path: Path) -> None:
    """The recording of a program that runs ends in the middle of a compile more often than not."""
    path = tmp_path / "live.dynadiag"
    under_way = build.compile_events("0/1")[:2]
    build.journal(
        path, _running([*build.run_events(), *build.source_events(), *build.compile_events("0/0"), *under_way])
    )
    async with browsing(path) as pilot:
        assert "failed" not in screen(pilot)
        assert "cut short" not in screen(pilot)
        assert "so far: " in screen(pilot)
        await press(pilot, "2")
        assert "● running" in screen(pilot)
        assert "error" not in screen(pilot)


async def test_a_search_of_another_terminal_is_watched_until_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "search.dynadiag"
    rows = TrialLog(path, "prog.py", ["prog.py"], asked={"command": "bisect", "options": []})
    rows.add("one", Outcome(None, 1.0, 7, 0), "pass", "as written")
    async with browsing(path) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        assert "live" in screen(pilot).splitlines()[-2]
        await press(pilot, "8", "c")
        assert "as written" in screen(pilot)
        assert "● running" in screen(pilot)
        assert "there is no stopped search" in screen(pilot)
        rows.add("two", Outcome(None, 1.0, 8, 0), "same", "all off: lowering")
        for finish in (False, True):
            if finish:
                rows.add_verdict('{"verdict": "found", "culprits": [{"class": "pass", "name": "noop"}]}')
                rows.finish(0, force=False)
            app.session.watch._next_check = 0.0
            app.check_recording()
            await app.workers.wait_for_complete()
            await settle(pilot)
            assert "all off: lowering" in screen(pilot)
        assert "culprit  pass noop" in screen(pilot)
        assert "live" not in screen(pilot).splitlines()[-2]


async def test_the_log_of_a_program_that_has_ended_is_not_live(tmp_path: Path) -> None:
    path = build.journal(tmp_path / "exported.log", [*build.run_events(), *build.compile_events("0/0")])
    async with browsing(path) as pilot:
        assert "still running" not in screen(pilot)
        assert "cut short" in screen(pilot)


async def test_a_recording_that_goes_away_is_said_and_still_shown(tmp_path: Path) -> None:
    path = build.recording(tmp_path, build.program())
    async with browsing(path) as pilot:
        path.unlink()
        app = pilot.app
        assert isinstance(app, Browser)
        app.check_recording()
        await press(pilot, "4")
        assert "was deleted" in screen(pilot)
        assert "GB0059" in screen(pilot)
        await press(pilot, "r")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert app.is_running


async def test_damage_inside_is_a_message_and_no_end(tmp_path: Path) -> None:
    path = build.recording(tmp_path, build.program())
    data = path.read_bytes()
    magic = (zstandard.MAGIC_NUMBER).to_bytes(4, "little")
    place = data.index(magic)
    path.write_bytes(data[: place + 40] + b"\0" * 200 + data[place + 240 :])
    async with browsing(path) as pilot:
        for number in range(1, 10):
            await press(pilot, str(number))
            assert "reading" not in screen(pilot)
        assert "damaged recording" in screen(pilot)
        assert pilot.app.is_running


async def test_whether_a_damaged_recording_has_a_search_is_not_known(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(self: Recording) -> None:
        raise UnreadableInput(f"{self.path}: a damaged recording")

    async with browsing(program) as pilot:
        monkeypatch.setattr(Recording, "trials", damaged)
        await press(pilot, "8")
        assert "whether this recording has a search could not be read" in screen(pilot)
        assert "this recording has no search" not in screen(pilot)


async def test_damage_that_only_a_key_asks_for_is_a_message_too(tmp_path: Path) -> None:
    path = build.recording(tmp_path, build.program())
    data = path.read_bytes()
    for found in reversed(list(re.finditer(re.escape(zstandard.MAGIC_NUMBER.to_bytes(4, "little")), data))):
        data = data[: found.start() + 12] + b"\0" * 12 + data[found.start() + 24 :]
    path.write_bytes(data)
    async with browsing(path) as pilot:
        await press(pilot, "7", "enter")
        assert "damaged recording" in screen(pilot)
        assert pilot.app.is_running


def test_events_that_cannot_be_read_are_rows_that_say_so() -> None:
    class Damaged:
        def event(self, index: int) -> Event:
            raise UnreadableInput(f"x.dynadiag: a damaged recording ({index})")

    rows = EventRows(cast(Recording, Damaged()), None, 3)
    assert [row.cells[4] for row in rows] == ["damaged"] * 3


async def test_lines_are_copied_and_written(tmp_path: Path) -> None:
    path = build.recording(tmp_path, build.program())
    out = tmp_path / "out.txt"
    async with browsing(path) as pilot:
        await press(pilot, "3", "g", "y")
        assert pilot.app.clipboard == "import torch"
        await press(pilot, "w")
        field = pilot.app.query_one(Input)
        field.value = str(out)
        await press(pilot, "enter")
        assert out.read_text() == build.SOURCE
        await press(pilot, "w")
        field.value = str(out)
        await press(pilot, "enter")
        assert "exists" in screen(pilot)


async def test_what_is_copied_brings_no_escape_codes_with_it(tmp_path: Path) -> None:
    """It may be pasted into a shell."""
    nasty = "import os  # \x1b[201~rm -rf ~\x07\u202e"
    events = [*build.run_events(), *build.source_events(f"{nasty}\r\n{build.SOURCE}"), *build.compile_events("0/0")]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "3", "g", "y")
        assert pilot.app.clipboard == "import os  # \\x1b[201~rm -rf ~\\x07\\u202e"
        await press(pilot, "Y")
        assert pilot.app.clipboard.splitlines()[0] == "import os  # \\x1b[201~rm -rf ~\\x07\\u202e"
        assert pilot.app.clipboard.endswith(build.SOURCE)


async def test_a_home_that_nobody_has_is_said(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "3", "w", *"~nobody-of-this-name/out.txt", "enter")
        assert "cannot write ~nobody-of-this-name/out.txt" in screen(pilot)


async def test_an_editor_that_is_no_command_is_said(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "vi 'x")
    async with browsing(program) as pilot:
        await press(pilot, "3", "e")
        assert "No closing quotation" in screen(pilot)


async def test_without_a_terminal_to_hand_over_the_editor_is_refused_in_words(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "3", "e")
        assert "cannot be given" in screen(pilot)
