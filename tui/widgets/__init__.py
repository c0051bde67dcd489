"""The browser's own widgets. Each draws only the lines on the screen."""

from __future__ import annotations

__all__ = [
    "code_pane",
    "graph_canvas",
    "ground",
    "keys",
    "lifetime",
    "lines",
    "prompt",
    "styled_lines",
    "table",
    "tabs",
    "tree",
]
