"""The themes: whether their text can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.color import Color as RichColor
from textual.color import Color

from tests.tui.conftest import browsing, press
from tui.colors import THEMES, role_style
from tui.views.overview import OverviewView

_TEXT_ROLES = ("dim", "error", "break", "recompile", "gutter", "help", "good", "key", "title", "add", "remove")
_SYNTAX_ROLES = ("keyword", "name", "builtin", "string", "number", "comment", "decorator")
_ENOUGH = 4.5  # contrast of text, as the Web Content Accessibility Guidelines ask of it
_ENOUGH_ON_CURSOR = 3.3  # of the one line that the cursor is on


def _ratio(one: Color, other: Color) -> float:
    """The contrast of two colors by the same guidelines, from 1 to 21."""

    def luminance(color: Color) -> float:
        parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["dark", "light", "color-blind"])
async def test_text_of_every_role_can_be_read_on_its_background(theme: str, program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, *["t"] * THEMES.index(theme))
        lines = pilot.app.query_one(OverviewView).lines
        plain, cursor = lines.background_colors[1], lines.get_component_styles("lines--cursor").background
        for role in (*_TEXT_ROLES, *_SYNTAX_ROLES):
            shown = role_style(role, theme).color or RichColor.default()
            text = Color.from_rich_color(shown)
            assert _ratio(text, plain) >= _ENOUGH, role
            assert _ratio(text, plain + cursor) >= _ENOUGH_ON_CURSOR, role
