"""Lines with a cursor: the base class of every list, tree, table and text of the browser.

One widget for each line would be too slow for 100,000 lines. So a line is drawn when it is on the screen, and no method
but a search takes time that grows with the number of lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip

from tui.colors import role_style
from tui.styled_text import clipboard_text, one_line
from tui.text_match import TextMatcher, highlight_matches
from tui.themes import palette_of
from tui.widgets.ground import PaneScrollBar

if TYPE_CHECKING:
    from tui.documents import Document

__all__ = ["FilterableLines", "Lines"]

_SCROLL_COLUMNS = 8  # columns for one scroll step sideways
_MAX_QUICK_LINES = 20_000  # lines that a search counts its matches in
_MIN_TEXT_COLUMNS = 30  # a line that would have fewer columns has no right margin


class Lines(ScrollView, can_focus=True):
    """The base class. Subclasses define the number of lines, their text and how they are drawn."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--cursor", "lines--match", "lines--header"}
    DEFAULT_CSS = """
    Lines { background: $surface; scrollbar-size: 1 1; overflow-x: hidden; overflow-y: auto; }
    Lines > .lines--cursor { background: $panel; }
    Lines:focus > .lines--cursor { background: $primary 35%; }
    Lines > .lines--match { background: $warning 45%; }
    Lines > .lines--header { text-style: bold; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False, id="lines.down"),
        Binding("k,up", "move(-1)", "up", show=False, id="lines.up"),
        Binding("ctrl+d", "page(0.5)", "half a page down", show=False, id="lines.half-down"),
        Binding("ctrl+u", "page(-0.5)", "half a page up", show=False, id="lines.half-up"),
        Binding("space,pagedown,ctrl+f", "page(1)", "a page down", show=False, id="lines.page-down"),
        Binding("b,pageup,ctrl+b", "page(-1)", "a page up", show=False, id="lines.page-up"),
        Binding("g,home", "first", "first line", show=False, id="lines.first"),
        Binding("G,end", "last", "last line", show=False, id="lines.last"),
        Binding("h,left", "side(-1)", "scroll left", show=False, id="lines.left"),
        Binding("l,right", "side(1)", "scroll right", show=False, id="lines.right"),
        Binding("enter", "choose", "go", show=True, id="lines.choose"),
        Binding("slash", "app.search", "search", key_display="/", show=True, id="lines.search"),
        Binding("n", "find(1)", "next match", show=False, id="lines.next"),
        Binding("N", "find(-1)", "previous match", show=False, id="lines.previous"),
        Binding("y", "copy", "copy the line", show=False, id="lines.copy"),
        Binding("Y", "copy_all", "copy all lines", show=False, id="lines.copy-all"),
        Binding("w", "app.write", "write all lines to a file", show=False, id="lines.write"),
    ]

    cursor = reactive(0, init=False, repaint=False)  # the lines that it leaves and enters are drawn again

    class Moved(Message):
        """The cursor stands on another line."""

        def __init__(self, lines: Lines, index: int) -> None:
            super().__init__()
            self.lines, self.index = lines, index

        @property
        def control(self) -> Lines:
            return self.lines

    class Chosen(Moved):
        """Enter, or a double click, on a line."""

    class Found(Moved):
        """The cursor stands on another match of the search."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.matcher = TextMatcher()
        self._style_of_lines = self._style_of_cursor = Style.null()

    @property
    def document(self) -> Document | None:
        """The document that is shown, or ``None``."""
        return None

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        if self._vertical_scrollbar is None:  # as Textual does, but for the class
            bar = self._vertical_scrollbar = PaneScrollBar(name="vertical", thickness=self.scrollbar_size_vertical)
            bar.display = False
            self.app._start_widget(self, bar)
        return self._vertical_scrollbar

    def render_str(self, text_content: str | Content) -> Content:
        """Return titles without markup, because they contain names from the recording."""
        return Content(text_content) if isinstance(text_content, str) else text_content

    def set_title(self, title: str) -> None:
        """Set the title. Unlike a new `border_title` it draws the border again, and not every line."""
        content = self.render_str(title)
        if content != self._border_title:
            self._border_title = content
            self.refresh(Region(-1, -1, self.outer_size.width, 1))

    # For subclasses

    @property
    def is_quick(self) -> bool:
        """Whether all lines can be read between two keys."""
        return self.count <= _MAX_QUICK_LINES

    @property
    def count(self) -> int:
        """The number of lines."""
        raise NotImplementedError

    def text_of(self, index: int) -> str:
        """Return the text of a line, to search and copy it."""
        raise NotImplementedError

    def draw_line(self, index: int) -> Strip:
        """Return a line, however long it is."""
        raise NotImplementedError

    def header(self) -> Strip | None:
        """Return a line that stays above the others, or ``None``."""
        return None

    def line_prefix(self, index: int) -> Strip | None:  # noqa: ARG002 - subclasses use it
        """Return what precedes a line and does not scroll sideways, or ``None``."""
        return None

    def line_suffix(self, index: int) -> Strip | None:  # noqa: ARG002 - subclasses use it
        """Return what stands at the right margin and does not scroll sideways, or ``None``."""
        return None

    def line_background(self, index: int) -> Style | None:  # noqa: ARG002 - subclasses use it
        """Return a background for the line, or ``None``."""
        return None

    def empty_text(self) -> str:
        """Return the message for an empty list."""
        return ""

    # Drawing the lines

    @property
    def palette(self) -> str:
        """The palette of the theme."""
        return palette_of(self.app.theme)

    @property
    def _header_rows(self) -> int:
        return 1 if self.header() is not None else 0

    @property
    def page_height(self) -> int:
        """The number of lines on one screen."""
        return max(1, self.scrollable_content_region.height - self._header_rows)

    def resize_content(self, width: int) -> None:
        """Update the scrollbars after the number of lines or the longest `width` has changed.

        A new size of the content lays out the whole screen. Only a widget that is as high as its content needs that.
        """
        size = Size(width, self.count + self._header_rows)
        if self.styles.height is None or self.styles.height.is_auto or not self.container_size:
            self.virtual_size = size
        elif size != self.virtual_size:
            self.set_reactive(Lines.virtual_size, size)
            self._scroll_update(size)
        self.cursor = max(0, min(self.cursor, self.count - 1))
        self.refresh()

    def on_resize(self) -> None:
        """Keep the cursor on the screen, unless the pane is hidden. Textual calls subclasses first."""
        if self.count and self.scrollable_content_region.height:
            last_top = max(0, self.count - self.page_height)
            if self.scroll_y > last_top:  # a larger pane has room for what a smaller one had scrolled away
                self.scroll_to(y=last_top, animate=False, immediate=True, force=True)
            self.reveal(self.kept_line)

    @property
    def kept_line(self) -> int:
        """The line that stays on the screen when the size changes."""
        return self.cursor

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw the lines of an area. Their styles are looked up once: that takes as long as to draw a line.

        A screen under a dialog draws a widget once more that has been removed, and has no styles any longer.
        """
        if not self.is_running:
            return [Strip.blank(crop.width)] * crop.height
        self._style_of_lines = self.rich_style
        self._style_of_cursor = self.get_component_rich_style("lines--cursor")
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        top = self.header()
        if top is not None and y == 0:
            style = self.get_component_rich_style("lines--header")
            return top.crop_extend(int(self.scroll_x), int(self.scroll_x) + width, style).apply_style(style)
        index = int(self.scroll_y) + y - (0 if top is None else 1)
        if index == self.count == 0 and (said := self.empty_text()):
            style = self.rich_style + role_style("dim", self.palette)
            return Strip([Segment(said, style)]).crop_extend(0, width, style)
        if not 0 <= index < self.count:
            return Strip.blank(width, self._style_of_lines)
        return self._line(index, width)

    def _line(self, index: int, width: int) -> Strip:
        before, after = self.line_prefix(index), self.line_suffix(index)
        room = width - (before.cell_length if before else 0)
        left = int(self.scroll_x)
        whole = self.draw_line(index)
        if self.matcher.pattern:
            whole = highlight_matches(whole, self.matcher, self.get_component_rich_style("lines--match"))
        if after is not None and room - after.cell_length >= min(_MIN_TEXT_COLUMNS, whole.cell_length + 1):
            room -= after.cell_length
        else:
            after = None
        if whole.cell_length > left + room > left:
            more = Strip([Segment("…", role_style("dim", self.palette))])
            parts: tuple[Strip | None, ...] = (before, whole.crop(left, left + room - 1), more, after)
        elif left or whole.cell_length > room or after is not None:
            parts = (before, whole.crop_extend(left, left + max(room, 0), None), after)
        else:
            parts = (before, whole)
        strip = Strip.join([part for part in parts if part is not None])
        if index == self.cursor and self.palette == "terminal":  # a color of the text could be that of the cursor
            return Strip([Segment(strip.text, Style(bold=True, reverse=self.has_focus))]).extend_cell_length(width)
        if strip.cell_length != width:
            strip = strip.crop_extend(0, width, None)
        return strip.apply_style(self._line_style(index))

    def _line_style(self, index: int) -> Style:
        own = self.line_background(index)
        style = self._style_of_lines if own is None else self._style_of_lines + own
        return style + self._style_of_cursor if index == self.cursor else style

    # Moving the cursor

    def validate_cursor(self, value: int) -> int:
        return max(0, min(value, self.count - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        self.refresh_row(old)
        self.refresh_row(new)
        self.reveal(new)
        self.post_message(self.Moved(self, new))

    def refresh_row(self, index: int) -> None:
        """Draw a line again, if it is on the screen."""
        top = int(self.scroll_y)
        if top <= index < top + self.page_height:
            self.refresh_line(index + self._header_rows)

    def reveal(self, index: int, *, middle: bool = False) -> None:
        """Scroll a line onto the screen; if `middle`, to its middle."""
        top, height = int(self.scroll_y), self.page_height
        if top <= index < top + height:
            return
        near = not middle and (index in (top - 1, top + height))
        wanted = (index if index < top else index - height + 1) if near else index - height // 2
        self.scroll_to(y=max(0, wanted), animate=False, immediate=True, force=True)

    def move_to(self, index: int) -> None:
        """Put the cursor on a line."""
        index = self.validate_cursor(index)
        if index == self.cursor:
            self.reveal(index, middle=True)
            self.post_message(self.Moved(self, index))
        self.cursor = index

    def action_move(self, by: int) -> None:
        """Move the cursor by a number of lines."""
        self.cursor += by

    def action_page(self, pages: float) -> None:
        """Move the cursor by a number of pages."""
        self.cursor += int(pages * self.page_height) or (1 if pages > 0 else -1)

    def action_first(self) -> None:
        """Move the cursor to the first line."""
        self.cursor = 0

    def action_last(self) -> None:
        """Move the cursor to the last line."""
        self.cursor = self.count - 1

    def action_side(self, way: int) -> None:
        """Scroll sideways."""
        room = self.scrollable_content_region.width
        most = max(0, self.virtual_size.width - room // 2)
        self.scroll_x = max(0, min(self.scroll_x + way * _SCROLL_COLUMNS, most))
        self.refresh()

    def validate_scroll_x(self, value: float) -> float:
        """Allow sideways scrolling without a scrollbar; Textual would not."""
        return max(0.0, value)

    def action_choose(self) -> None:
        """Send `Chosen` for the cursor's line."""
        if self.count:
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)  # without the border, which the event's own offset includes
        if at is None:
            return
        index = int(self.scroll_y) + at.y - self._header_rows
        if at.y < self._header_rows:
            self.header_clicked(at.x + int(self.scroll_x))
        elif 0 <= index < self.count:
            self.cursor = index
            self.clicked(index, at.x)
            if event.chain == 2:
                self.action_choose()

    def header_clicked(self, column: int) -> None:
        """Called on a click on the header."""

    def clicked(self, index: int, column: int) -> None:
        """Called on a click on a line."""

    # Searching and copying

    def search(self, pattern: str) -> bool:
        """Search for a text from the cursor on. Return whether there is a match."""
        self.matcher = TextMatcher(pattern)
        self.refresh()
        return not pattern or self._find(1, here=True)

    def action_find(self, way: int) -> None:
        """Go to the next or previous match."""
        if not self.matcher.pattern:
            self.notify("press / to search first", severity="warning")
        elif not self._find(way):
            self.notify(f"not found: {self.matcher.pattern}", severity="warning", markup=False)
        else:
            self.post_message(self.Found(self, self.cursor))

    def match_position(self) -> str:
        """Return which of how many matching lines the cursor is on, as ``3 of 12``."""
        if not self.matcher.pattern or not self.is_quick:
            return ""
        found = [index for index in range(self.count) if self.matcher.matches(self.text_of(index))]
        before = sum(index <= self.cursor for index in found)
        return f"{before:,} of {len(found):,}" if found else "none"

    def _find(self, way: int, *, here: bool = False) -> bool:
        found = self.matcher.find_next(self.text_of, self.count, self.cursor, way, here=here)
        if found is None:
            return False
        self.cursor = found
        return True

    def action_copy(self) -> None:
        """Copy the cursor's line to the clipboard."""
        if self.count:
            self.app.copy_to_clipboard(clipboard_text(self.text_of(self.cursor)))
            self.notify("line copied")

    def action_copy_all(self) -> None:
        """Copy all lines to the clipboard."""
        self.app.copy_to_clipboard(clipboard_text(self.full_text()))
        self.notify(f"{self.count:,} lines copied")

    def full_text(self) -> str:
        """Return all lines as one text."""
        return "".join(f"{self.text_of(index)}\n" for index in range(self.count))


class FilterableLines(Lines):
    """Lines that can be filtered by a text."""

    filter = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f,ampersand", "app.filter", "filter", key_display="f", show=True, id="lines.filter"),
    ]

    def empty_text(self) -> str:
        return f"no line contains {one_line(self.filter)!r}: escape shows all" if self.filter else ""

    @property
    def whole_count(self) -> int:
        """The number of lines without the filter."""
        return self.count

    @property
    def unfiltered_because(self) -> str:
        """Why the lines cannot be filtered; empty where they can."""
        return ""

    def set_filter(self, text: str) -> None:
        """Show the lines that contain a text, or all lines for an empty text."""
        self.filter = text
        self.apply_filter()
        self.show_count()

    def show_count(self) -> None:
        """Show the number of lines in the frame."""
        self.border_subtitle = f"{self.count:,}{f' with {one_line(self.filter)}' if self.filter else ''}"

    def apply_filter(self) -> None:
        """Apply the filter."""
        raise NotImplementedError
