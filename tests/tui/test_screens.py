"""The screens, small and large: nothing that matters is cut off, no pane is empty without a word."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.binding import Binding

from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.help import HelpScreen, key_label
from tui.views.code import CodeView
from tui.views.pane_actions import PaneActions
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Table

SIZES = [(80, 24), (200, 60)]


@pytest.mark.parametrize("size", SIZES)
async def test_no_pane_is_empty(program: Path, size: tuple[int, int]) -> None:
    async with browsing(program, size) as pilot:
        assert isinstance(pilot.app, Browser)
        for key in "123456789":
            await press(pilot, key)
            shown = [one for one in pilot.app.current.query(StyledLines) if one.display and one.size.height]
            assert [one.id for one in shown if not any(item.text.strip() for item in one.lines)] == [], key


@pytest.mark.parametrize("key", "45")
async def test_a_detail_is_wrapped_beside_its_scrollbar(program: Path, key: str) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, key)
        assert isinstance(pilot.app, Browser)
        pane = pilot.app.current.query_one(".detail", StyledLines)
        assert len(pane.lines) > 8
        assert max(len(item.text) for item in pane.lines) <= pane.size.width - pane.styles.scrollbar_size_vertical


async def test_the_overview_tells_where_a_break_is_at_80_columns(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        (row,) = (text for text in screen(pilot).splitlines() if "GB0059" in text)
        assert f"{Path(build.FILE).name}:8" in row


async def test_a_call_tells_what_it_led_to(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "2", "k")
        text = screen(pilot)
        assert "2 compiles, 4.0 s" in text
        assert "called  1" in text


async def test_a_short_list_leaves_the_room_to_its_detail(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "4")
        assert isinstance(pilot.app, Browser)
        listing, pane = pilot.app.current.children
        assert (listing.size.height, pane.outer_size.height) == (2, 19), "a row and the titles"


def test_the_help_writes_keys_as_they_are_on_a_keyboard() -> None:
    bindings = (*Browser.BINDINGS, *CodeView.BINDINGS, *PaneActions.BINDINGS)
    words = {key_label(binding, {}) for binding in bindings if isinstance(binding, Binding)}
    assert words >= {"'", ".", "(", ")", "["}
    assert not {word for word in words if "_" in word or "apostrophe" in word}


async def test_the_help_is_wrapped(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        pane = pilot.app.screen.query_one(StyledLines)
        assert max(len(item.text) for item in pane.lines) <= pane.columns


async def test_a_filter_that_nothing_holds_is_said(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "4", "f", *"zebra", "enter")
        assert "no line contains 'zebra': escape shows all" in screen(pilot)
        await press(pilot, "escape")
        assert "GB0059" in screen(pilot)


async def test_a_line_that_is_cut_says_so(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "6")
        row = next(text for text in screen(pilot).splitlines() if "TENSOR_MATCH" in text)
        assert row.rstrip().endswith("…")
        await press(pilot, *"l" * 20)
        assert any("stride=[1])" in text for text in screen(pilot).splitlines())


async def test_a_small_screen_tells_whose_guards_it_shows(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "6", "J")
        assert "Guards of 0/1 f · 1" in screen(pilot)
        await press(pilot, "4", "6")
        assert "Guards of 0/1 f · 1" in screen(pilot)


async def test_a_time_line_that_was_not_recorded_is_said_to_be_missing(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "2", "v")
        assert "no time line was recorded" in screen(pilot)
        await press(pilot, "escape")
        assert "no time line was recorded" not in screen(pilot)


async def test_a_recompile_tells_what_to_do_before_what_changed(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "5")
        assert isinstance(pilot.app, Browser)
        pane = pilot.app.current.query_one(".detail", StyledLines)
        texts = [item.text for item in pane.lines]
        first = next(place for place, text in enumerate(texts) if text.startswith("help: "))
        assert first == 2
        assert any("size()[0] was 4, now 5" in text for text in texts[first:])


async def test_an_empty_pane_counts_no_lines(tmp_path: Path) -> None:
    path = build.recording(tmp_path, [*build.run_events(), *build.end_events()])
    async with browsing(path, (200, 40)) as pilot:
        await press(pilot, "3", "tab", "tab")
        text = screen(pilot)
        assert "later graphs" in text
        assert "1/0" not in text


@pytest.mark.parametrize("key", "12456789")
async def test_no_worker_asks_a_widget_for_its_size(key: str, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Textual computes for it is kept in caches that two threads must not change."""
    asked: list[str] = []
    columns = vars(StyledLines)["columns"].fget

    def watched(pane: StyledLines) -> int:
        asked.append(threading.current_thread().name)
        return int(columns(pane))

    monkeypatch.setattr(StyledLines, "columns", property(watched))
    async with browsing(program) as pilot:
        await press(pilot, key, "j", "k")
    assert set(asked) <= {threading.main_thread().name}


async def test_an_event_shows_its_kind_and_its_name_at_80_columns(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "9")
        assert "dynamo_output_graph" in screen(pilot)
        assert "artifact  inductor_post_" in screen(pilot)
        assert "time" not in screen(pilot).split("\n")[1]


@pytest.mark.parametrize("key", ["2", "3", "4", "5", "6", "7"])
async def test_where_nothing_was_compiled_no_other_reason_is_given(key: str, tmp_path: Path) -> None:
    async with browsing(build.recording(tmp_path, [*build.run_events(), *build.end_events()])) as pilot:
        await press(pilot, key)
        assert "nothing was compiled" in screen(pilot)
        assert "Guards of" not in screen(pilot)


async def test_a_reason_is_wrapped_where_code_is_not(tmp_path: Path) -> None:
    async with browsing(build.recording(tmp_path, build.search_events(0)), (60, 24)) as pilot:
        await press(pilot, "7")
        assert "record the program itself to see compiles" in " ".join(screen(pilot).split())
        await pilot.resize_terminal(120, 40)
        await settle(pilot)
        assert "shows its trials; record the program itself to see compiles" in screen(pilot)


async def test_events_say_why_they_are_not_filtered(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "9", "f")
        assert "these rows cannot be filtered" in screen(pilot)
        await press(pilot, "shift+tab", "f", *"run", "enter")
        assert [row.key for row in pilot.app.query_one("#events-kinds", Table).rows] == ["dynadiag_run"]
