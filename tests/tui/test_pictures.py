"""Pictures of the screens, kept as SVG and compared: what changes one has to be looked at.

`pytest tests/tui/test_pictures.py --snapshot-update` writes those that have changed. The recordings are made by hand:
no time, path or version in them differs from one run to the next.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.tui import build
from tests.tui.conftest import browsing, press, settle
from tests.tui.test_diff_screen import compare, two_recordings
from tui.colors import THEMES

_SIZES = {"small": (80, 24), "medium": (120, 40), "large": (200, 60)}
_OF_THE_RUN = re.compile(r"terminal-\d+-")  # Rich names each drawing by a hash
_TIME_OF_DAY = re.compile(r"\d\d:\d\d:\d\d\.\d{3}")  # when the test wrote its event
_DRAWN_TWICE = re.compile(r"<clipPath.*?</clipPath>\s*| clip-path=\"[^\"]*\"|@font-face \{.*?\}\s*", re.DOTALL)


class Picture(SingleFileSnapshotExtension):
    """An SVG file for each picture."""

    file_extension = "svg"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """What compares a picture with the kept one."""
    return snapshot.use_extension(Picture)


def _compact(svg: str) -> str:
    """The drawing without names of this run, and without what a viewer does not need."""
    bare = _DRAWN_TWICE.sub("", _OF_THE_RUN.sub("t-", _TIME_OF_DAY.sub("00:00:00.000", svg)))
    bare = bare.replace("&#160;", "\N{NO-BREAK SPACE}")
    return "\n".join(line.strip() for line in bare.splitlines() if line.strip()) + "\n"


async def _picture(path: Path, size: str, *keys: str) -> str:
    async with browsing(path, _SIZES[size]) as pilot:
        await press(pilot, *keys)
        pilot.app.clear_notifications()
        await settle(pilot)
        return _compact(pilot.app.export_screenshot())


_OTHERS = "24567890"  # the screens beside the two main ones


def _to_screen(key: str) -> tuple[str, ...]:
    return (key, *"relu", "enter") if key == "0" else (key,)


@pytest.mark.parametrize("key", _OTHERS)
async def test_a_screen(key: str, program: Path, picture: SnapshotAssertion) -> None:
    assert await _picture(program, "medium", *_to_screen(key)) == picture


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("key", _OTHERS)
async def test_a_screen_at_another_size(key: str, size: str, program: Path, picture: SnapshotAssertion) -> None:
    """In the light theme, as the others are in the dark one."""
    light = "t" * THEMES.index("light")
    assert await _picture(program, size, *light, *_to_screen(key)) == picture


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("key", "13")
async def test_the_main_screens_at_every_size(key: str, size: str, program: Path, picture: SnapshotAssertion) -> None:
    assert await _picture(program, size, key) == picture


@pytest.mark.parametrize("theme", THEMES[1:])
async def test_a_screen_in_another_theme(theme: str, program: Path, picture: SnapshotAssertion) -> None:
    assert await _picture(program, "medium", "3", *"t" * THEMES.index(theme)) == picture


async def test_the_help(program: Path, picture: SnapshotAssertion) -> None:
    assert await _picture(program, "small", "5", "question_mark") == picture


async def test_a_search_that_found_nothing(tmp_path: Path, picture: SnapshotAssertion) -> None:
    found = build.recording(tmp_path, build.search_events(3, {"verdict": "passes"}))
    assert await _picture(found, "medium", "8") == picture


@pytest.mark.parametrize("size", _SIZES)
async def test_a_run_without_findings(size: str, tmp_path: Path, picture: SnapshotAssertion) -> None:
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0"), *build.end_events()]
    assert await _picture(build.recording(tmp_path, events), size) == picture


@pytest.mark.parametrize("size", _SIZES)
async def test_two_recordings_side_by_side(size: str, tmp_path: Path, picture: SnapshotAssertion) -> None:
    async with browsing(two_recordings(tmp_path), _SIZES[size], folder=tmp_path) as pilot:
        await compare(pilot, "before", "+ w = z.neg()")
        await settle(pilot)
        assert _compact(pilot.app.export_screenshot()) == picture
