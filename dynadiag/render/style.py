"""How a text report looks: its width, and whether it has colours."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Style"]

_MIN_WIDTH = 60  # columns: a report for a narrower terminal is laid out for 60

# SGR parameters (ECMA-48). The sixteen colours of the terminal's own theme, so that light and dark both read.
_PALETTE = {
    "strong": "1",
    "dim": "2",
    "error": "1;31",
    "break": "1;33",
    "recompile": "1;35",
    "gutter": "34",
    "mark": "1;31",
    "help": "1;36",
    "good": "32",
}


@dataclass(frozen=True, slots=True)
class Style:
    """Width in columns, and whether to colour."""

    width: int = 80
    color: bool = False

    @property
    def columns(self) -> int:
        """The columns of a report: the width, or the least that a report is laid out for."""
        return max(self.width, _MIN_WIDTH)

    def paint(self, text: str, role: str) -> str:
        """The text in the colour of a role; as it is without colour, or for a role that has none."""
        code = _PALETTE.get(role)
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and code and text else text
