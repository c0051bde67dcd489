"""The browser's own widgets. Each draws only the lines on the screen."""

from __future__ import annotations

__all__ = ["code", "lines", "prompt", "styled", "table", "tabs", "tree"]
