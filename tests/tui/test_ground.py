"""What lies below and beside the panes looks as Textual draws it, and is drawn once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual._compositor import Compositor
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from tests.tui.conftest import browsing, press, settle
from tui.widgets.ground import Ground, PaneScrollBar

_SHORT = (120, 16)  # too few rows for the code


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark"])
@pytest.mark.parametrize("kind", [Ground, PaneScrollBar])
async def test_it_looks_as_textual_draws_it(kind: type[Widget], theme: str, program: Path) -> None:
    async with browsing(program, _SHORT) as pilot:
        pilot.app.theme = theme
        await press(pilot, "3", "tab", "G")
        found = [widget for widget in pilot.app.screen._compositor.visible_widgets if isinstance(widget, kind)]
        assert found
        for widget in found:
            everything = widget.size.region
            drawn, theirs = widget.render_lines(everything), Widget.render_lines(widget, everything)
            assert [list(strip) for strip in drawn] == [list(strip) for strip in theirs]
            assert [list(strip) for strip in widget.render_lines(Region(0, 3, 1, 1))] == [list(drawn[3].crop(0, 1))]


@pytest.mark.parametrize("key", ["3", "tab", "7"])
async def test_a_key_lays_the_screen_out_once_and_draws_it_once(
    key: str, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither scroll bars with a new size nor a new focus lead to another layout or another drawing."""
    async with browsing(program, _SHORT) as pilot:
        await press(pilot, "7", "3", *["2"] * (key != "tab"))
        done = list[str]()
        lay_out, draw = Screen._refresh_layout, Compositor.render_update

        def laid_out(self: Screen[object], *args: Any, **named: Any) -> None:
            done.append("laid out")
            lay_out(self, *args, **named)

        def drawn(self: Compositor, *args: Any, **named: Any) -> Any:
            update = draw(self, *args, **named)
            done.extend(["drawn"] * (update is not None))
            return update

        monkeypatch.setattr(Screen, "_refresh_layout", laid_out)
        monkeypatch.setattr(Compositor, "render_update", drawn)
        pilot.app.simulate_key(key)
        await asyncio.sleep(0.05)
        await settle(pilot)
        assert done == ["laid out", "drawn"]


def test_the_scroll_bar_of_a_removed_pane_is_blank() -> None:
    assert [strip.text for strip in PaneScrollBar().render_lines(Region(0, 0, 1, 2))] == [" ", " "]
