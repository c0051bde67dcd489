"""What lies below and beside the panes, drawn with less work than Textual takes for it.

Textual draws every line of every widget, and cuts it where any other widget begins: half of the time of a key that
opens a screen is spent on lines that are alike, most of them below others.
"""

from __future__ import annotations

from rich.style import Style
from textual.containers import Container, Horizontal
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.screen import Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip
from textual.widget import Widget


class Ground(Widget):
    """A container without a border: one line is drawn, and every line is that one."""

    def render_lines(self, crop: Region) -> list[Strip]:
        return super().render_lines(Region(crop.x, 0, crop.width, min(crop.height, 1))) * crop.height


class GroundContainer(Container, Ground):
    """A container, drawn as `Ground`."""


class Columns(Horizontal, Ground):
    """Widgets side by side."""


class GroundScreen(Screen[None], Ground):
    """The screen below all dialogs. Textual would draw all of it again whenever another widget has the focus."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def _compositor_refresh(self) -> None:
        """Repaint in the same pass the widgets that asked for it since. Textual makes another pass over all widgets."""
        self._compositor.update_widgets({one for one in self._compositor.visible_widgets if one._repaint_regions})
        super()._compositor_refresh()


class PaneScrollBar(ScrollBar):
    """A vertical scroll bar. Its cells of one kind share a strip, and a new size does not lay out the screen again."""

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:  # noqa: ARG002 - Textual's
        return super()._size_updated(size, virtual_size, container_size, layout=False)

    def render_lines(self, crop: Region) -> list[Strip]:
        if self.parent is None:  # its pane was removed while a dialog is drawn over it
            return [Strip.blank(crop.width)] * crop.height
        bar = self.render()
        assert isinstance(bar, ScrollBarRender)
        assert isinstance(bar.style, Style)
        assert bar.style.color is not None
        assert bar.style.bgcolor is not None
        cells = bar.render_bar(
            self.size.height,
            bar.virtual_size,
            bar.window_size,
            bar.position,
            bar.thickness,
            bar.vertical,
            bar.style.bgcolor,
            bar.style.color,
        ).segments
        background = self.background_colors[1]
        strips = {}
        for cell in set(cells):
            strips[cell] = Strip([cell], bar.thickness).apply_style(self.visual_style.rich_style)
            for line_filter in self.get_line_filters():
                strips[cell] = strips[cell].apply_filter(line_filter, background)
        return [strips[cell] for cell in cells[crop.y : crop.bottom]]
