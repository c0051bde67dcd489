"""Two recordings side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from dynadiag.diff.difference import Difference
from tests.tui import build
from tests.tui.conftest import browsing, press, settle
from tests.tui.test_command_screen import until
from tui.app import Browser
from tui.diff_screen import DiffScreen
from tui.diff_sides import aligned_rows, read_sides
from tui.session import Session
from tui.views.code import CodeView
from tui.widgets.lines import Lines

ENDED = build.DYNAMO.replace("return (z,)", 'w: "f32[4][1]cpu" = z.neg();  z = None\n        return (w,)')


def recorded(folder: Path, name: str, source: str, graph: str) -> Path:
    events = [*build.run_events(), *build.source_events(source), *build.compile_events("0/0", graph=graph)]
    return build.recording(folder, [*events, *build.end_events()], name)


def two_recordings(folder: Path) -> Path:
    """Make two recordings in a folder; the second has a cosine for a sine, and one node more. Return the second."""
    recorded(folder, "before", build.SOURCE, build.DYNAMO)
    graph = ENDED.replace("l_x_.sin()", "l_x_.cos()")
    return recorded(folder, "after", build.SOURCE.replace("x.sin()", "x.cos()"), graph)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """The second of two recordings in a folder."""
    return two_recordings(tmp_path)


async def compare(pilot: Pilot[int], other: str, text: str) -> None:
    """Compare with another recording of the folder, and wait for a text."""
    await press(pilot, "C")
    await pilot.app.workers.wait_for_complete()
    await press(pilot, "f", *other, "enter", "enter")
    await until(pilot, text)


def side_by_side(pilot: Pilot[int]) -> list[tuple[str, str]]:
    screen = pilot.app.screen
    assert isinstance(screen, DiffScreen)
    before, after = ([line.text.strip() for line in pane.lines] for pane in screen.sides)
    return list(zip(before, after, strict=True))


async def test_the_graphs_that_differ_first_stand_side_by_side(after: Path, tmp_path: Path) -> None:
    async with browsing(after, folder=tmp_path) as pilot:
        await compare(pilot, "before", "before.dynadiag · Dynamo's graph")
        assert side_by_side(pilot) == [
            ("inputs: x", "inputs: x"),
            ("~ y = x.sin()", "~ y = x.cos()"),
            ("z = relu(y)", "z = relu(y)"),
            ("", "+ w = z.neg()"),
            ("~ return (z,)", "~ return (w,)"),
        ]


async def test_of_a_changed_source_both_texts_stand_side_by_side(after: Path, tmp_path: Path) -> None:
    async with browsing(after, folder=tmp_path) as pilot:
        await compare(pilot, "before", "before.dynadiag · Dynamo's graph")
        await press(pilot, "k")
        await until(pilot, "before.dynadiag · prog.py")
        assert ("~     y = x.sin()", "~     y = x.cos()") in side_by_side(pilot)


def test_a_source_that_only_one_run_has_is_not_all_new(after: Path, tmp_path: Path) -> None:
    bare = build.recording(tmp_path, [*build.run_events(), *build.compile_events("0/0"), *build.end_events()], "bare")
    item = Difference("guard", ("0/0", "0/0"), build.FILE, 7, "a guard changed")
    with Session.open(bare) as first, Session.open(after) as second:
        sides = read_sides(first, second, item)
    assert sides is not None
    assert sides.before[0].text == "this file is not in the recording"
    assert sides.after[0].text == "  import torch"
    assert list(sides.changed) == [6]


async def test_the_next_change_is_one_key_away_and_both_sides_follow(after: Path, tmp_path: Path) -> None:
    async with browsing(after, folder=tmp_path) as pilot:
        await compare(pilot, "before", "before.dynadiag · Dynamo's graph")
        found = pilot.app.screen
        assert isinstance(found, DiffScreen)
        await press(pilot, "full_stop")
        assert [pane.cursor for pane in found.sides] == [3, 3]
        await press(pilot, "k")
        assert [pane.cursor for pane in found.sides] == [2, 2]
        await press(pilot, "comma")
        assert [pane.cursor for pane in found.sides] == [1, 1]


async def test_a_message_about_a_line_that_is_gone_is_about_the_cursors(after: Path, tmp_path: Path) -> None:
    """A terminal that becomes wider wraps into fewer lines, before the message about a former one is handled."""
    async with browsing(after, folder=tmp_path) as pilot:
        await compare(pilot, "before", "before.dynadiag · Dynamo's graph")
        found = pilot.app.screen
        assert isinstance(found, DiffScreen)
        found.lines.post_message(Lines.Moved(found.lines, 1000))
        await settle(pilot)
        assert pilot.app.is_running
        found.sides[0].post_message(Lines.Chosen(found.sides[0], 1000))
        await until(pilot, "before.dynadiag · 2 of 2")


async def test_enter_on_a_side_goes_to_its_line_in_its_recording(after: Path, tmp_path: Path) -> None:
    async with browsing(after, folder=tmp_path) as pilot:
        await compare(pilot, "before", "before.dynadiag · Dynamo's graph")
        await press(pilot, "tab", "enter")
        await until(pilot, "before.dynadiag · 2 of 2")
        await settle(pilot)
        assert isinstance(pilot.app, Browser)
        view = pilot.app.query_one(CodeView)
        pane = view.pane("dynamo")
        assert pane.text_of(pane.cursor) == "y = x.sin()"
        view.on_mount()  # as where the screen's own first read comes after the jump has been followed
        await pilot.pause()
        await settle(pilot)
        assert pilot.app.focused is pane
        assert pane.text_of(pane.cursor) == "y = x.sin()"


async def test_runs_that_are_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        recorded(tmp_path, name, build.SOURCE, build.DYNAMO)
    async with browsing(tmp_path / "two.dynadiag", folder=tmp_path) as pilot:
        await compare(pilot, "one.dyna", "the runs are the same")
        await press(pilot, "full_stop", "enter", "tab", "j", "escape")
        assert not isinstance(pilot.app.screen, DiffScreen)


def test_lines_without_a_sign_belong_together() -> None:
    rows = list(aligned_rows((4, 4), ({1: "-", 3: "~"}, {2: "+", 3: "~"})))
    assert rows == [(0, 0), (1, None), (2, 1), (None, 2), (3, 3)]


async def test_lines_that_read_alike_say_what_differs(tmp_path: Path) -> None:
    recorded(tmp_path, "before", build.SOURCE, build.DYNAMO.replace('[1]cpu" = l_x_', '[1]cuda:0" = l_x_'))
    path = recorded(tmp_path, "after", build.SOURCE, build.DYNAMO)
    async with browsing(path, folder=tmp_path) as pilot:
        await compare(pilot, "before", "y = x.sin()  cuda:0")
        assert ("~ y = x.sin()  cuda:0", "~ y = x.sin()  cpu") in side_by_side(pilot)
