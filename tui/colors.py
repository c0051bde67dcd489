"""The themes, and for each the colors of roles, of syntax and of linked lines: dark, light, and two more.

The palette `color-blind` tells good from bad by blue and orange instead of green and red. The palette `terminal` uses
only the 16 colors that the user has chosen for the terminal.

The colors of linked lines are from Okabe and Ito (Color Universal Design, 2008): people with the common kinds of color
blindness can tell them apart. Black is left out, and some colors are darker on a light background.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rich.color import Color
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

# The name of a theme in the settings -> its name in Textual. The first one is shown unless the settings name another.
_TEXTUAL = {"dark": "textual-dark", "light": "light", "terminal": "ansi-dark", "color-blind": "color-blind"}
_PALETTES = {textual: name for name, textual in _TEXTUAL.items()}
THEMES = tuple(_TEXTUAL)


def theme_of(name: str) -> Theme:
    """Return the theme of a name in `THEMES`; an unknown one is the dark theme.

    The light one has a lighter surface than Textual's own, on whose gray dim and colored text has too little contrast.
    """
    if name == "light":
        return replace(BUILTIN_THEMES["textual-light"], name="light", surface="#FAFAFA", panel="#E8E8E8")
    if name == "color-blind":
        return Theme("color-blind", "#0072B2", warning="#F0E442", error="#E69F00", success="#56B4E9", accent="#CC79A7")
    return BUILTIN_THEMES[_TEXTUAL.get(name, "textual-dark")]


def palette_of(textual: str) -> str:
    """Return the name, which is also that of the palette of `tui.colors`, of a theme of Textual."""
    return _PALETTES.get(textual, "dark")


def next_theme(name: str) -> str:
    """Return the theme after this one, the first after the last."""
    return THEMES[(THEMES.index(name) + 1) % len(THEMES)]


_OKABE_ITO = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2")
_LIGHT = {"#F0E442": "#9A8F00", "#E69F00": "#B57D00", "#56B4E9": "#2588C0"}
_DARK = {"#0072B2": "#3C9BD6"}
LINE_COLORS = len(_OKABE_ITO)

# Of a role, or of a kind of token: (dark, light, terminal)
_STYLES = {
    "strong": ("bold", "bold", "bold"),
    "dim": ("#9aa4b0", "#56606a", "dim"),
    "error": ("bold #ff6b6b", "bold #c01c28", "bold red"),
    "break": ("bold #f5b94a", "bold #9a5b00", "bold yellow"),
    "recompile": ("bold #d59cf0", "bold #7b2fa8", "bold magenta"),
    "gutter": ("#86a3c6", "#3d5f8a", "blue"),
    "mark": ("bold #ff6b6b", "bold #c01c28", "bold red"),
    "help": ("bold #5fc9d8", "bold #006d7d", "bold cyan"),
    "good": ("#7fd18b", "#1a7431", "green"),
    "key": ("bold #8fc4ff", "bold #1f5fae", "bold blue"),
    "title": ("bold #8fc4ff", "bold #1f5fae", "bold blue"),
    "bar": ("#56B4E9", "#2588C0", "blue"),
    "bar2": ("#009E73", "#009E73", "green"),
    "bar3": ("#E69F00", "#B57D00", "yellow"),
    "bar4": ("#CC79A7", "#A34C7F", "magenta"),
    "bar5": ("#8a94a0", "#66707a", "white"),
    "add": ("#7fd18b", "#1a7431", "green"),
    "remove": ("#ff8f8f", "#b3261e", "red"),
    "keyword": ("#c792ea", "#7b2fa8", "magenta"),
    "name": ("#82aaff", "#1f5fae", "blue"),
    "builtin": ("#5fc9d8", "#006d7d", "cyan"),
    "string": ("#a5d6a7", "#2e6b34", "green"),
    "number": ("#f7a072", "#a34700", "red"),
    "comment": ("#9aa4b0", "#56606a", "dim"),
    "decorator": ("#f5b94a", "#9a5b00", "yellow"),
}
# What differs from the dark palette. Each pair that means opposite things is one of orange and one of blue.
_COLOR_BLIND = {
    "error": "bold #ff9a3c",
    "mark": "bold #ff9a3c",
    "break": "bold #f0e442",
    "recompile": "bold #e3a1c6",
    "good": "#6cc4f5",
    "add": "#6cc4f5",
    "remove": "#ff9a3c",
    "string": "#f0e9a8",
}
_TERMINAL_LINES = ("yellow", "cyan", "green", "blue", "magenta", "red", "white")
_COLUMN = {"dark": 0, "light": 1, "terminal": 2, "color-blind": 0}


@lru_cache(maxsize=256)
def role_style(role: str, palette: str) -> Style:
    """Return the style of a role or of a token kind; an unknown one is plain."""
    if palette == "color-blind" and role in _COLOR_BLIND:
        return Style.parse(_COLOR_BLIND[role])
    return Style.parse(_STYLES[role][_COLUMN[palette]]) if role in _STYLES else Style.null()


def line_color(number: int, palette: str) -> str:
    """Return the color of the `number`-th linked source line. Neighbors have different colors."""
    if palette == "terminal":
        return _TERMINAL_LINES[number % LINE_COLORS]
    colour = _OKABE_ITO[number % LINE_COLORS]
    return (_LIGHT if palette == "light" else _DARK).get(colour, colour)


@lru_cache(maxsize=512)
def tint(colour: str, ground: str, share: float) -> str:
    """Blend `colour` into the background `ground`, weakly enough to keep text readable."""
    over, under = (Color.parse(name).get_truecolor() for name in (colour, ground))
    red, green, blue = (round(a * share + b * (1 - share)) for a, b in zip(over, under, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"
