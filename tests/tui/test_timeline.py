"""The time line of the run: its slices from torch's events, the bars, zoom, sorting, and every rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynadiag.render.time_slices import read_slices
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.session import Session, open_recordings
from tui.timeline import TimelineScreen, bar
from tui.views.compiles import CompilesView

_START = 1e15  # microseconds since the epoch


def _section(name: str, begin: float, end: float, compile_id: str) -> build.Events:
    """A section of torch's trace, in seconds from the start."""
    here = build.at(compile_id) if compile_id != "-" else {}
    times = (("B", begin), ("E", end))
    return [
        ({"chromium_event": {}, **here}, json.dumps({"name": name, "ph": kind, "ts": _START + at * 1e6, "tid": 0}))
        for kind, at in times
    ]


def _nested(compile_id: str, begin: float, end: float) -> build.Events:
    """A compile with one phase inside."""
    outer = _section("dynamo", begin, end, compile_id)
    return [outer[0], *_section("backend_compile", begin + 0.1, end - 0.1, compile_id), outer[1]]


def _events() -> build.Events:
    return [
        *build.run_events(),
        *build.source_events(),
        *_nested("0/0", 0.0, 2.0),
        *build.compile_events("0/0"),
        *_section("compile_file", 0.5, 1.5, "-"),
        *build.recompile_events("0/1", "4", "5"),
        *_nested("0/1", 3.0, 4.0),
        *build.compile_events("0/1"),
        *build.end_events(),
    ]


def test_compiles_recompiles_phases_and_threads_are_slices(tmp_path: Path) -> None:
    with Session.open(build.recording(tmp_path, _events())) as session:
        found = read_slices(session.recording, session.explanation())
    timed = [one for one in found if one.kind != "cache"]
    assert {one.compile_id for one in found if one.kind == "cache"} <= {"0/0", "0/1"}
    assert [(one.kind, one.compile_id, one.depth, round(one.end - one.start, 3)) for one in timed] == [
        ("compile", "0/0", 0, 2.0),
        ("phase", "0/0", 1, 1.8),
        ("C++", "-", 0, 1.0),
        ("recompile", "0/1", 0, 1.0),
        ("phase", "0/1", 1, 0.8),
    ]
    assert found[0].name == "f"


@pytest.mark.parametrize("columns", [1, 2, 7, 40])
def test_a_bar_never_leaves_its_columns(columns: int) -> None:
    for start, end in (
        (0.0, 1.0),
        (0.0, 100.0),
        (3.0, 3.0),
        (99.9, 100.0),
        (-5.0, -1.0),
        (105.0, 110.0),
        (-5.0, 200.0),
    ):
        drawn = bar(start, end, (0.0, 100.0), columns)
        assert 0 < len(drawn) <= columns


async def test_the_time_line_is_zoomed_sorted_and_left(tmp_path: Path) -> None:
    async with browsing(build.recording(tmp_path, _events())) as pilot:
        await press(pilot, "2", "v")
        shown = pilot.app.screen
        assert isinstance(shown, TimelineScreen)
        table = shown.table
        assert "time line of the run: 4" in screen(pilot)
        assert ", from " not in str(table.border_title), "it shows the whole run"
        before = table.rows[0].cells[-1]
        await press(pilot, "z")
        assert ", from 0.000 to " in str(table.border_title)
        assert len(table.rows[0].cells[-1]) > len(before)
        assert table.rows[0].cells[-1].count("\u2588") == len(table.rows[0].cells[-1]), "the compile takes all of it"
        await press(pilot, "minus", "minus")
        assert ", from " not in str(table.border_title)
        await press(pilot, "s", "s")
        seconds = [float(row.cells[1]) for row in table.rows]
        assert seconds == sorted(seconds, reverse=True)
        await press(pilot, "f", *"recompile", "enter")
        assert [row.cells[4] for row in table.rows] == ["recompile"]
        await press(pilot, "enter")
        assert isinstance(pilot.app, Browser)
        assert isinstance(pilot.app.current, CompilesView)
        assert pilot.app.current.location().compile_id == "0/1"


async def test_every_rank_is_on_it(tmp_path: Path) -> None:
    for rank in range(2):
        events = _events()
        events[0][0]["dynadiag_run"].update(rank=rank)
        build.recording(tmp_path, events, f"rank{rank}")
    opened = open_recordings([tmp_path])
    with opened.session as session:
        app = Browser(session, opened.paths, opened.rank)
        async with app.run_test(size=(140, 40), notifications=True) as pilot:
            await settle(pilot)
            await press(pilot, "2", "v")
            assert isinstance(app.screen, TimelineScreen)
            assert {row.cells[2] for row in app.screen.table.rows} == {"0", "1"}


async def test_a_run_without_events_says_so(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "2", "v")
        assert "no time line was recorded" in screen(pilot)
        await press(pilot, "v")
        assert not isinstance(pilot.app.screen, TimelineScreen)
