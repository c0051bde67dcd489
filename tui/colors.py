"""Colors of roles, of syntax and of linked lines, for a dark and a light background.

The colors of linked lines are from Okabe and Ito (Color Universal Design, 2008): people with the common kinds of color
blindness can tell them apart. Black is left out, and some colors are darker on a light background.
"""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.style import Style

__all__ = ["LINE_COLORS", "line_color", "role_style", "syntax_style", "tint"]

_OKABE_ITO = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2")
_LIGHT = {"#F0E442": "#9A8F00", "#E69F00": "#B57D00", "#56B4E9": "#2588C0"}
_DARK = {"#0072B2": "#3C9BD6"}
LINE_COLORS = len(_OKABE_ITO)

# (dark, light)
_ROLE = {
    "strong": ("bold", "bold"),
    "dim": ("#8a94a0", "#66707a"),
    "error": ("bold #ff6b6b", "bold #c01c28"),
    "break": ("bold #f5b94a", "bold #9a5b00"),
    "recompile": ("bold #d59cf0", "bold #7b2fa8"),
    "gutter": ("#6f8fb5", "#3d5f8a"),
    "mark": ("bold #ff6b6b", "bold #c01c28"),
    "help": ("bold #5fc9d8", "bold #006d7d"),
    "good": ("#7fd18b", "#1a7431"),
    "key": ("bold #8fc4ff", "bold #1f5fae"),
    "title": ("bold #8fc4ff", "bold #1f5fae"),
    "bar": ("#56B4E9", "#2588C0"),
    "bar2": ("#009E73", "#009E73"),
    "bar3": ("#E69F00", "#B57D00"),
    "bar4": ("#CC79A7", "#A34C7F"),
    "bar5": ("#8a94a0", "#66707a"),
    "add": ("#7fd18b", "#1a7431"),
    "remove": ("#ff8f8f", "#b3261e"),
}
_SYNTAX = {
    "keyword": ("#c792ea", "#7b2fa8"),
    "name": ("#82aaff", "#1f5fae"),
    "builtin": ("#5fc9d8", "#006d7d"),
    "string": ("#a5d6a7", "#2e6b34"),
    "number": ("#f7a072", "#a34700"),
    "comment": ("#8a94a0", "#66707a"),
    "decorator": ("#f5b94a", "#9a5b00"),
    "add": _ROLE["add"],
    "remove": _ROLE["remove"],
}


@lru_cache(maxsize=256)
def role_style(role: str, dark: bool) -> Style:
    """Return the style of a role or of a token kind; an unknown one is plain."""
    return Style.parse(_ROLE[role][not dark]) if role in _ROLE else syntax_style(role, dark)


@lru_cache(maxsize=64)
def syntax_style(kind: str, dark: bool) -> Style:
    """Return the style of a token kind."""
    return Style.parse(_SYNTAX[kind][not dark]) if kind in _SYNTAX else Style.null()


def line_color(number: int, dark: bool) -> str:
    """Return the color of the `number`-th linked source line. Neighbors have different colors."""
    colour = _OKABE_ITO[number % LINE_COLORS]
    return (_DARK if dark else _LIGHT).get(colour, colour)


@lru_cache(maxsize=512)
def tint(colour: str, ground: str, share: float) -> str:
    """Blend `colour` into the background `ground`, weakly enough to keep text readable."""
    over, under = (Color.parse(name).get_truecolor() for name in (colour, ground))
    red, green, blue = (round(a * share + b * (1 - share)) for a, b in zip(over, under, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"
