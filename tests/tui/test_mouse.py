"""The mouse: what is clicked on is what is meant, with a frame around it and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.widgets.code_pane import CodePane
from tui.widgets.lines import Lines
from tui.widgets.table import Table

FRAMED, FRAMELESS = (120, 40), (80, 24)


async def _click(pilot: Pilot[int], text: str, times: int = 1) -> None:
    """Click on the first place of the screen where a text stands."""
    rows = screen(pilot).splitlines()
    y = next(number for number, row in enumerate(rows) if text in row)
    await pilot.click(offset=(rows[y].index(text) + 1, y), times=times)
    await settle(pilot)


def _app(pilot: Pilot[int]) -> Browser:
    assert isinstance(pilot.app, Browser)
    return pilot.app


@pytest.mark.parametrize("size", [FRAMED, FRAMELESS])
async def test_a_click_on_a_row_puts_the_cursor_there(program: Path, size: tuple[int, int]) -> None:
    async with browsing(program, size) as pilot:
        await press(pilot, "7")
        table = _app(pilot).focused
        assert isinstance(table, Table)
        for number, row in enumerate(table.rows):
            await pilot.click(table, offset=(3, table.gutter.top + table.HEADER_ROWS + number))
            assert table.key == row.key


@pytest.mark.parametrize("size", [FRAMED, FRAMELESS])
async def test_a_click_on_a_line_of_a_pane_goes_into_it_and_lights_the_others(
    program: Path, size: tuple[int, int]
) -> None:
    async with browsing(program, size) as pilot:
        await press(pilot, "3")
        await press(pilot, "tab")
        await _click(pilot, "z = torch.r")
        source = _app(pilot).focused
        assert isinstance(source, CodePane)
        assert source.text_of(source.cursor).strip() == "z = torch.relu(y)"
        dynamo = _app(pilot).current.query_one("#pane-dynamo", CodePane)
        assert dynamo.text_of(dynamo.highlighted[-1]) == "z = relu(y)"


@pytest.mark.parametrize("size", [FRAMED, FRAMELESS])
async def test_a_double_click_goes_where_enter_goes(program: Path, size: tuple[int, int]) -> None:
    async with browsing(program, size) as pilot:
        await _click(pilot, "GB0059", times=2)
        assert _app(pilot).current.NAME == "breaks"


@pytest.mark.parametrize("size", [FRAMED, FRAMELESS])
async def test_a_click_on_a_columns_title_sorts_by_it(program: Path, size: tuple[int, int]) -> None:
    async with browsing(program, size) as pilot:
        await press(pilot, "7")
        await _click(pilot, "name")
        assert "name▲" in screen(pilot)
        await _click(pilot, "name▲")
        assert "name▼" in screen(pilot)


@pytest.mark.parametrize("size", [FRAMED, FRAMELESS])
async def test_a_click_on_a_branchs_mark_opens_it(program: Path, size: tuple[int, int]) -> None:
    async with browsing(program, size) as pilot:
        await press(pilot, "2")
        rows = screen(pilot).splitlines()
        y = next(number for number, row in enumerate(rows) if "0/0" in row)
        await pilot.click(offset=(rows[y].index("▸"), y))
        await settle(pilot)
        assert any("▾" in row and "0/0" in row for row in screen(pilot).splitlines())
        assert "1 guard" in screen(pilot)


async def test_a_click_on_a_screens_name_opens_it(program: Path) -> None:
    async with browsing(program, FRAMED) as pilot:
        await _click(pilot, "Code")
        assert _app(pilot).current.NAME == "code"


async def test_a_click_on_the_frame_moves_nothing(program: Path) -> None:
    async with browsing(program, FRAMED) as pilot:
        await press(pilot, "7", "j", "j")
        table = _app(pilot).focused
        assert isinstance(table, Lines)
        x, y, _, _ = table.region
        await pilot.click(offset=(x + 3, y))
        await settle(pilot)
        assert table.cursor == 2
