"""Lines with a cursor: the base class of every list, tree, table and text of the browser.

One widget for each line would be too slow for 100,000 lines. So a line is drawn when it is on the screen, and no method
but a search takes time that grows with the number of lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip

from tui.colors import palette_of, role_style
from tui.key_bindings import footer_key, hidden_key
from tui.styled_text import clipboard_text, one_line
from tui.text_match import TextMatcher, highlight_matches
from tui.widgets.ground import PaneScrollBar

if TYPE_CHECKING:
    from tui.documents import Document


_SCROLL_COLUMNS = 8  # columns for one scroll step sideways
_MAX_QUICK_LINES = 20_000  # lines that a search counts its matches in
_LINES_AROUND = 3  # lines that a jump shows above and below the line that it goes to
_MIN_TEXT_COLUMNS = 30  # a line that would have fewer columns has no right margin


class Lines(ScrollView, can_focus=True):
    """The base class. Subclasses define the number of lines, their text and how they are drawn."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--cursor", "lines--match"}
    DEFAULT_CSS = """
    Lines { background: $surface; scrollbar-size: 1 1; overflow-x: hidden; overflow-y: auto; }
    Lines > .lines--cursor { background: $panel; }
    Lines:focus > .lines--cursor { background: $primary 35%; }
    Lines > .lines--match { background: $warning 45%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden_key("j,down", "move(1)", "down", "lines.down"),
        hidden_key("k,up", "move(-1)", "up", "lines.up"),
        hidden_key("ctrl+d", "page(0.5)", "half a page down", "lines.half-down"),
        hidden_key("ctrl+u", "page(-0.5)", "half a page up", "lines.half-up"),
        hidden_key("space,pagedown,ctrl+f", "page(1)", "a page down", "lines.page-down"),
        hidden_key("b,pageup,ctrl+b", "page(-1)", "a page up", "lines.page-up"),
        hidden_key("g,home", "first", "first line", "lines.first"),
        hidden_key("G,end", "last", "last line", "lines.last"),
        hidden_key("h,left", "side(-1)", "scroll left", "lines.left"),
        hidden_key("l,right", "side(1)", "scroll right", "lines.right"),
        footer_key("enter", "choose", "go", "lines.choose"),
        footer_key("/", "app.search", "find", "lines.search", "find a text here; 0 searches everything"),
        hidden_key("},f3", "find(1)", "next match", "lines.next"),
        hidden_key("{,shift+f3", "find(-1)", "previous match", "lines.previous"),
        footer_key("y", "copy", "copy", "lines.copy", "copy the line"),
        hidden_key("Y", "copy_all", "copy all lines", "lines.copy-all"),
        hidden_key("w", "app.write", "write all lines to a file", "lines.write"),
    ]

    HEADER_ROWS: ClassVar[int] = 0  # 1 if the header stays above the lines

    cursor = reactive(0, init=False, repaint=False)  # the lines that it leaves and enters are drawn again

    class Moved(Message):
        """The cursor stands on another line."""

        def __init__(self, lines: Lines, index: int) -> None:
            super().__init__()
            self.lines, self.index = lines, index

    class Chosen(Moved):
        """Enter, or a double click, on a line."""

    class Found(Moved):
        """The cursor stands on another match of the search."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.matcher = TextMatcher()
        self.palette = ""  # the palette of the theme
        self._line_width = 0  # columns for a line
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
    def min_text_columns(self) -> int:
        """The fewest columns that a line's text keeps beside a text at the right margin."""
        return _MIN_TEXT_COLUMNS

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

    def draw_line(self, index: int) -> list[Segment]:
        """Return a line, however long it is."""
        raise NotImplementedError

    def line_prefix(self, index: int) -> list[Segment]:  # noqa: ARG002 - subclasses use it
        """Return what precedes a line and does not scroll sideways."""
        return []

    def line_suffix(self, index: int) -> list[Segment]:  # noqa: ARG002 - subclasses use it
        """Return what stands at the right margin and does not scroll sideways."""
        return []

    def line_background(self, index: int) -> Style | None:  # noqa: ARG002 - subclasses use it
        """Return a background for the line, or ``None``."""
        return None

    def empty_text(self) -> str:
        """Return the message for an empty list."""
        return ""

    # Drawing the lines

    @property
    def page_height(self) -> int:
        return max(1, self.scrollable_content_region.height - self.HEADER_ROWS)

    def resize_content(self, width: int) -> None:
        """Update the scrollbars after the number of lines or the longest `width` has changed.

        A new size of the content lays out the whole screen. Only a widget that is as high as its content needs that.
        """
        size = Size(width, self.count + self.HEADER_ROWS)
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
            self.reveal(self.kept_line, around=_LINES_AROUND)

    @property
    def kept_line(self) -> int:
        """The line that stays on the screen when the size changes."""
        return self.cursor

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw the lines of an area. What they share is looked up once: that takes as long as to draw a line.

        A screen under a dialog draws a widget once more that has been removed, and has no styles any longer.
        """
        if not self.is_running:
            return [Strip.blank(crop.width)] * crop.height
        self.palette = palette_of(self.app.theme)
        self._line_width = self.scrollable_content_region.width
        self._style_of_lines = self.rich_style
        self._style_of_cursor = self.get_component_rich_style("lines--cursor")
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        index = int(self.scroll_y) + y - self.HEADER_ROWS
        if index == self.count == 0 and (said := self.empty_text()):
            return self._strip([Segment(said, role_style("dim", self.palette))], self._style_of_lines)
        if not 0 <= index < self.count:
            return Strip.blank(self._line_width, self._style_of_lines)
        segments = self._line(index)
        if index == self.cursor and self.palette == "terminal":  # a color of the text could be that of the cursor
            text = "".join(segment.text for segment in segments)
            return self._strip([Segment(text, Style(bold=True, reverse=self.has_focus))], None)
        own = self.line_background(index)
        style = self._style_of_lines if own is None else self._style_of_lines + own
        return self._strip(segments, style + self._style_of_cursor if index == self.cursor else style)

    def _line(self, index: int) -> list[Segment]:
        before, line, after = self.line_prefix(index), self.draw_line(index), self.line_suffix(index)
        if self.matcher.pattern:
            line = highlight_matches(line, self.matcher, self.get_component_rich_style("lines--match"))
        width, left = Segment.get_line_length, int(self.scroll_x)
        room, length = self._line_width - width(before), width(line)
        if after and room - width(after) >= min(self.min_text_columns, length + 1):
            room -= width(after)
        else:
            after = []
        if length > left + room > left:
            more = Segment("…", role_style("dim", self.palette))
            return [*before, *cut_columns(line, left, left + room - 1), more, *after]
        shown = cut_columns(line, left, left + room) if left or length > room else line
        return [*before, *(Strip(shown).adjust_cell_length(room) if after else shown), *after]

    def _strip(self, segments: list[Segment], style: Style | None) -> Strip:
        """Return segments as one line of the widget, in a style below their own."""
        strip = Strip(segments).adjust_cell_length(self._line_width, style or Style())
        return Strip(Segment.apply_style(strip, style), self._line_width)

    # Moving the cursor

    def validate_cursor(self, value: int) -> int:
        return max(0, min(value, self.count - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        self.refresh_row(old)
        self.refresh_row(new)
        self.reveal(new)
        self.post_message(self.Moved(self, new))

    def refresh_row(self, index: int) -> None:
        top = int(self.scroll_y)
        if top <= index < top + self.page_height:
            self.refresh(Region(0, index - top + self.HEADER_ROWS, self.size.width, 1))

    def reveal(self, index: int, *, middle: bool = False, around: int = 0) -> None:
        """Scroll a line onto the screen, to its middle with `middle` or where fewer than `around` lines are beside it.

        A pane that is hidden has no size yet: it is scrolled when it gets one.
        """
        if not self.scrollable_content_region.height:
            return
        top, height = int(self.scroll_y), self.page_height
        around = min(around, (height - 1) // 3)
        above, below = min(around, index), min(around, self.count - 1 - index)
        if top + above <= index < top + height - below:
            return
        near = not middle and not around and (index in (top - 1, top + height))
        wanted = (index if index < top else index - height + 1) if near else index - height // 2
        self.scroll_to(y=max(0, wanted), animate=False, immediate=True, force=True)

    def move_to(self, index: int) -> None:
        index = self.validate_cursor(index)
        if index == self.cursor:
            self.post_message(self.Moved(self, index))
        self.cursor = index
        self.reveal(index, middle=True, around=_LINES_AROUND)

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, pages: float) -> None:
        self.cursor += int(pages * self.page_height) or (1 if pages > 0 else -1)

    def action_first(self) -> None:
        self.cursor = 0

    def action_last(self) -> None:
        self.cursor = self.count - 1

    def action_side(self, way: int) -> None:
        room = self.scrollable_content_region.width
        most = max(0, self.virtual_size.width - room // 2)
        self.scroll_x = max(0, min(self.scroll_x + way * _SCROLL_COLUMNS, most))
        self.refresh()

    def validate_scroll_x(self, value: float) -> float:
        """Allow sideways scrolling without a scrollbar; Textual would not."""
        return max(0.0, value)

    def action_choose(self) -> None:
        if self.count:
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)  # without the border, which the event's own offset includes
        if at is None:
            return
        index = int(self.scroll_y) + at.y - self.HEADER_ROWS
        if at.y < self.HEADER_ROWS:
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
        if self.count:
            self.app.copy_to_clipboard(clipboard_text(self.text_of(self.cursor)))
            self.notify("line copied")

    def action_copy_all(self) -> None:
        self.app.copy_to_clipboard(clipboard_text(self.full_text()))
        self.notify(f"{self.count:,} lines copied")

    def full_text(self) -> str:
        return "".join(f"{self.text_of(index)}\n" for index in range(self.count))


class FilterableLines(Lines):
    """Lines that can be filtered by a text."""

    filter = ""
    unit = total = ""  # what is counted: " calls", and of how many in all where no filter hides some: " of 16 kernels"
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("f,ampersand", "app.filter", "filter", "lines.filter"),
    ]

    def empty_text(self) -> str:
        return f"no line contains {one_line(self.filter)!r}: escape shows all" if self.filter else ""

    @property
    def whole_count(self) -> int:
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
        more = f" with {one_line(self.filter)}" if self.filter else self.total
        self.border_subtitle = f"{self.count:,}{self.unit}{more}"

    def apply_filter(self) -> None:
        """Apply the filter."""
        raise NotImplementedError


def cut_columns(segments: Sequence[Segment], start: int, end: int | None = None) -> list[Segment]:
    """Return what is shown between two columns."""
    return list(Strip(segments).crop(start, end))
