"""The graph as a picture: it is drawn, walked with the arrows, opened, folded and written."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.conftest import browsing, press, screen
from tui.app import Browser
from tui.graph_screen import GraphScreen
from tui.views.code import CodeView


def _picture(pilot: Pilot[int]) -> GraphScreen:
    assert isinstance(pilot.app.screen, GraphScreen)
    return pilot.app.screen


def _code(pilot: Pilot[int]) -> CodeView:
    assert isinstance(pilot.app, Browser)
    assert isinstance(pilot.app.current, CodeView)
    return pilot.app.current


async def test_the_arrows_walk_from_node_to_node(program: Path) -> None:
    async with browsing(program, (80, 40)) as pilot:
        await press(pilot, "3", "tab", "v")
        assert "│ y = sin │" in screen(pilot)
        start = _picture(pilot).selected.title
        await press(pilot, "down")
        assert _picture(pilot).selected.title == "z = relu"
        await press(pilot, "up")
        assert _picture(pilot).selected.title == start == "y = sin"
        await press(pilot, "up", "up")
        assert _picture(pilot).selected.title == "x", "nothing is above an input"


async def test_the_picture_starts_at_the_node_of_a_line_that_torch_printed(program: Path) -> None:
    """The line was looked up in the readable form of the graph, which has fewer."""
    async with browsing(program) as pilot:
        await press(pilot, "3", "tab", "p")
        pane = _code(pilot).pane("dynamo")
        pane.move_to(next(at for at in range(pane.count) if pane.text_of(at).lstrip().startswith("z: ")))
        await press(pilot, "v")
        assert _picture(pilot).selected.title == "z = relu"


async def test_enter_goes_to_the_line_of_the_node(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "3", "tab", "v", "down", "enter")
        pane = _code(pilot).pane("dynamo")
        assert pane.text_of(pane.cursor) == "z = relu(y)"
        assert pane.has_focus


async def test_the_whole_graph_is_written_as_svg(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with browsing(program) as pilot:
        await press(pilot, "3", "tab", "v", "w", "w", "escape")
        assert not isinstance(pilot.app.screen, GraphScreen)
    (written,) = tmp_path.glob("*.svg")
    assert written.name == "dynamo-0-0.svg"
    assert ">y = sin<" in written.read_text()


async def test_keys_that_lead_nowhere_change_nothing(program: Path) -> None:
    async with browsing(program, (40, 10)) as pilot:
        await press(pilot, "3", "v", "left", "right", "minus", "asterisk", "up", "up", "up")
        assert _picture(pilot).selected.title
        await pilot.resize_terminal(200, 60)
        await press(pilot, "down")
        assert "boxes" in screen(pilot)


async def test_walking_before_the_picture_is_drawn_does_nothing(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.widgets.graph_canvas.GraphCanvas.show", lambda *_: None)
    async with browsing(program) as pilot:
        await press(pilot, "3", "tab", "v", "up", "left")
        assert isinstance(pilot.app.screen, GraphScreen)


async def test_keys_before_a_box_is_selected_do_nothing(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphScreen, "_fold", lambda *_: None)
    async with browsing(program) as pilot:
        await press(pilot, "3", "tab", "v", "enter", "minus", "asterisk", "up", "w")
        assert isinstance(pilot.app.screen, GraphScreen)
        await press(pilot, "escape")
        assert not isinstance(pilot.app.screen, GraphScreen)
