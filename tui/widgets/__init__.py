"""The browser's own widgets: each draws only the lines that are on the screen."""

from __future__ import annotations

__all__ = ["code", "lines", "prompt", "styled", "table", "tabs", "tree"]
