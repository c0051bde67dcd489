"""Lines of text with roles: reports, details, the overview."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip

from tui.palette import role_style
from tui.roles import Line
from tui.widgets.lines import Lines

__all__ = ["StyledLines"]


class StyledLines(Lines):
    """A text. A line that enter goes somewhere from has a mark in front."""

    def __init__(self, lines: Sequence[Line] = (), *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._lines = lines
        self._marks = any(item.target for item in lines)

    def on_mount(self) -> None:
        self.show(self._lines)

    def show(self, lines: Sequence[Line], *, keep: bool = False) -> None:
        """Show other lines, from the top unless `keep`."""
        self._lines = lines
        self._marks = any(item.target for item in lines)
        self.resize_content(max((cell_len(item.text) for item in lines), default=0))
        if not keep:
            self.scroll_to(0, 0, animate=False, immediate=True, force=True)
            self.set_reactive(Lines.cursor, 0)
        self.refresh()

    @property
    def columns(self) -> int:
        """Columns for a text that may be longer than the screen: without those of a scrollbar that may come."""
        bar = 0 if self.show_vertical_scrollbar else self.styles.scrollbar_size_vertical
        return max(1, self.scrollable_content_region.width - bar)

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    @property
    def count(self) -> int:
        return len(self._lines)

    def text_of(self, index: int) -> str:
        return self._lines[index].text

    def side(self, index: int) -> Strip | None:
        if not self._marks:
            return None
        return Strip([Segment("▸ " if self._lines[index].target else "  ", role_style("key", self.dark))])

    def draw(self, index: int) -> Strip:
        dark = self.dark
        return Strip([Segment(text, role_style(role, dark)) for text, role in self._lines[index].fragments])
