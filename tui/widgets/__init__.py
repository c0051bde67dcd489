"""The browser's own widgets: each draws only the lines that are on the screen."""

from __future__ import annotations

from tui.widgets.code import CodePane
from tui.widgets.lines import Lines
from tui.widgets.styled import StyledLines
from tui.widgets.table import Column, Row, Table
from tui.widgets.tree import Branch, Tree

__all__ = ["Branch", "CodePane", "Column", "Lines", "Row", "StyledLines", "Table", "Tree"]
