"""Bookmarks with notes, and the screen as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.errors import UnreadableInput
from tests.tui.conftest import browsing, press, screen
from tui.bookmarks import read_bookmarks
from tui.widgets.lines import Lines


async def test_a_line_is_marked_found_again_and_unmarked(program: Path, tmp_path: Path) -> None:
    before = program.read_bytes()
    async with browsing(program, folder=tmp_path) as pilot:
        await press(pilot, "3", "j", "m", *"why", "enter", "1")
    async with browsing(program, folder=tmp_path) as pilot:
        await press(pilot, "apostrophe")
        (row,) = (text for text in screen(pilot).splitlines() if "prog.py:7" in text)
        assert "Code 0/0" in row
        assert "z = torch.relu(y)" in row
        assert "why" in row
        await press(pilot, "enter")
        lines = pilot.app.focused
        assert isinstance(lines, Lines)
        assert lines.text_of(lines.cursor).strip() == "z = torch.relu(y)"
        await press(pilot, "apostrophe", "D", "escape", "apostrophe")
        assert "there is no bookmark yet" in "\n".join(item.message for item in pilot.app._notifications)
    (kept,) = (tmp_path / "bookmarks").iterdir()
    assert read_bookmarks(kept) == []
    assert program.read_bytes() == before


def test_a_damaged_file_of_bookmarks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('[{"place": 3}]')
    with pytest.raises(UnreadableInput, match=r"x\.json: these are no bookmarks"):
        read_bookmarks(path)


async def test_a_mark_beside_damaged_bookmarks_is_not_kept_and_nothing_is_overwritten(
    program: Path, tmp_path: Path
) -> None:
    async with browsing(program, folder=tmp_path) as pilot:
        await press(pilot, "3", "m", "enter")
    (kept,) = (tmp_path / "bookmarks").iterdir()
    kept.write_text('{"broken')
    async with browsing(program, folder=tmp_path) as pilot:
        await press(pilot, "3", "m", "enter")
        assert "the bookmark is not kept" in "\n".join(item.message for item in pilot.app._notifications)
    assert kept.read_text() == '{"broken'


async def test_the_screen_is_written_as_a_picture_and_as_text_never_over_a_file(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with browsing(program) as pilot:
        for name in ("a.svg", "a.txt", "a.txt"):
            await press(pilot, "W", *[{".": "full_stop"}.get(char, char) for char in name], "enter")
        assert "a.txt exists" in "\n".join(item.message for item in pilot.app._notifications)
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    text = (tmp_path / "a.txt").read_text()
    assert "Where the time went" in text
    assert "write the screen to" not in text
