"""The themes: dark, light, the terminal's own 16 colors, and one for people who confuse red and green."""

from __future__ import annotations

from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

_LIGHT = "light"
_COLOR_BLIND = "color-blind"
# The name of a theme in the settings -> its name in Textual. The first one is shown unless the settings name another.
_TEXTUAL = {"dark": "textual-dark", _LIGHT: "light", "terminal": "ansi-dark", _COLOR_BLIND: _COLOR_BLIND}
_PALETTES = {textual: name for name, textual in _TEXTUAL.items()}
THEMES = tuple(_TEXTUAL)


def theme_of(name: str) -> Theme:
    """Return the theme of a name in `THEMES`; an unknown one is the dark theme.

    The light one has a lighter surface than Textual's own, on whose gray dim and colored text has too little contrast.
    """
    if name == _LIGHT:
        return replace(BUILTIN_THEMES["textual-light"], name=_LIGHT, surface="#FAFAFA", panel="#E8E8E8")
    if name == _COLOR_BLIND:
        return Theme(_COLOR_BLIND, "#0072B2", warning="#F0E442", error="#E69F00", success="#56B4E9", accent="#CC79A7")
    return BUILTIN_THEMES[_TEXTUAL.get(name, "textual-dark")]


def palette_of(textual: str) -> str:
    """Return the name, which is also that of the palette of `tui.colors`, of a theme of Textual."""
    return _PALETTES.get(textual, "dark")


def next_theme(name: str) -> str:
    """Return the theme after this one, the first after the last."""
    return THEMES[(THEMES.index(name) + 1) % len(THEMES)]
