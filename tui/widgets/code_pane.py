"""A pane of code with line numbers, syntax highlighting and the links between lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Set
from functools import lru_cache
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.strip import Strip

from dynadiag.explanation.formatting import count
from tui.colors import line_color, role_style, tint
from tui.documents import Document, SourceNote
from tui.key_bindings import footer_key
from tui.line_links import LineKey, LineLinks
from tui.node_values import ValueMargin
from tui.styled_text import one_line, printable_code
from tui.widgets.lines import Lines, cut_columns

_HIGHLIGHT_SHARE = 0.30  # share of the link color in the background of highlighted lines
_CALLED_SHARE = 0.12  # the same for lines that the cursor's line led to, or that led to it
_FRAME = 2  # columns of the border
_NOTE_GAP = 5  # columns between a line and the finding on it, with its sign
_MIN_CODE_COLUMNS = 18  # of a line beside the value of its node
_EMPTY = LineLinks()
_FILE_COMMENT = "# File: "  # precedes the nodes of a source line in a printed graph
_MAX_SEARCHED_LINES = 2000  # highlighted lines searched for such a comment


class CodePane(Lines):
    """Shows a document. A linked line has a bar in the color of its source line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("e", "app.edit", "edit", "code.edit", "open this line in $EDITOR"),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._document: Document | None = None
        self.links = _EMPTY
        self.line_colors: Mapping[LineKey, int] = {}  # the color number of each source line, the same in all panes
        self._highlighted: Mapping[int, LineKey | None] = {}
        self._called: frozenset[int] = frozenset()  # lines that the cursor's line led to by a call, or the other way
        self._note = ""
        self.notes: Mapping[int, SourceNote] = {}  # findings on lines of the document
        self.values: Mapping[int, ValueMargin] = {}  # of the nodes on lines of a graph
        self.elsewhere: frozenset[int] = frozenset()  # lines that only another compile made something of

    @property
    def document(self) -> Document | None:
        return self._document

    def show_note(self, note: str) -> None:
        self._document, self.links, self._highlighted, self._note = None, _EMPTY, {}, note
        self._called = frozenset()
        self.resize_content(0)

    def render_line(self, y: int) -> Strip:
        note = self._note or (self.document.note if self.document else "")
        if note:
            style = self._style_of_lines + role_style("dim", self.palette)
            rows = _wrapped(note, max(self._line_width, 1))
            return self._strip([Segment(rows[y])] if y < len(rows) else [], style)
        return super().render_line(y)

    def show(self, document: Document, links: LineLinks = _EMPTY, line: int = 0) -> None:
        """Show a document with the cursor on a line (from 0)."""
        self._document, self.links, self._highlighted, self._note = document, links, {}, ""
        self._called, self.notes, self.values, self.elsewhere = frozenset(), {}, {}, frozenset()
        self.set_reactive(Lines.cursor, max(0, min(line, len(document.lines) - 1)))
        self.resize_content(max((_width(text) for text in document.lines), default=0) + self._margin)
        self.scroll_to(0, max(0, self.cursor - self.page_height // 3), animate=False, immediate=True, force=True)
        self.refresh()

    def highlight(
        self, places: Set[LineKey], callers: Set[LineKey], *, reveal: bool, only: tuple[int, ...] = ()
    ) -> int:
        """Highlight the lines made of these source lines, and faintly those that they led to, or that led to them.

        `callers` are the lines of the frames that led to the cursor's line. Where nothing was made of the lines
        themselves, what they led to is highlighted instead. `only` are the lines of a graph that the cursor's line of
        generated code computes, where that is known. Return how many lines are highlighted.
        """
        lines = only or self.linked_lines(places)
        before, before_called = self._highlighted, self._called
        self._highlighted = {line: _color_key(self._keys(line, places)) for line in lines}
        self._called = frozenset({*self.links.called_from(places), *self.links.lines_of(callers)}.difference(lines))
        top = int(self.scroll_y)
        for line in range(top, top + self.page_height):
            if before.get(line) != self._highlighted.get(line) or (line in before_called) != (line in self._called):
                self.refresh_row(line)
        shown = lines or tuple(sorted(self._called))
        if reveal and shown:
            first = self.first_highlighted if lines else shown[-1]
            if not any(self.is_line_visible(line) for line in shown if line >= first):
                self.reveal(first, middle=True)
        return len(lines)

    def _keys(self, line: int, places: Set[LineKey] = frozenset()) -> Set[LineKey]:
        """The source lines that color a line: those in `places` that it, or what led to it, has; else its own."""
        own, above = self.links.keys_of(line), self.links.callers.get(line, frozenset())
        return own & places or above & places or own or above

    def linked_lines(self, places: Set[LineKey]) -> tuple[int, ...]:
        """Return the linked lines; if a kernel line is given, only the lines linked to it."""
        return self.links.lines_of([place for place in places if is_kernel_line(place)]) or self.links.made_of(places)

    @property
    def first_highlighted(self) -> int:
        """The highlighted line to show first: in a graph a computation rather than an argument."""
        lines = self.highlighted
        heads = (line for line in lines[:_MAX_SEARCHED_LINES] if self.text_of(line).lstrip().startswith(_FILE_COMMENT))
        return next(heads, lines[0])

    @property
    def highlighted(self) -> list[int]:
        return sorted(self._highlighted)

    @property
    def kept_line(self) -> int:
        """In a pane beside the one with the cursor, a line that is linked to the cursor's line."""
        return self.first_highlighted if self._highlighted and not self.has_focus else self.cursor

    def is_line_visible(self, line: int) -> bool:
        return int(self.scroll_y) <= line < int(self.scroll_y) + self.page_height

    @property
    def first_visible_linked(self) -> int:
        """The first linked line on the screen, or the first line."""
        top = int(self.scroll_y)
        seen = range(top, min(self.count, top + self.page_height))
        return next((line for line in seen if self.links.keys_of(line)), top)

    def status(self, places: frozenset[LineKey], lit: int, *, here: bool) -> str:
        """Return what the title says: the cursor's line, or the number of lines that are linked to it."""
        if not self.count:
            return ""
        if here:
            return f"line {self.cursor + 1:,} of {self.count:,}"
        if not places or not lit:
            return "no mapping"
        own = self.links.lines_of(places)
        inferred = ", inferred" if own and own[0] in self.links.inferred else ""
        return f"{count(lit, 'linked line')}{inferred}" if own else f"{count(lit, 'line')} made by this call"

    @property
    def full_width(self) -> int:
        """Columns with which no line is cut: its number, text, what is at its end, the frame and a scrollbar."""
        notes = (_width(self.text_of(index)) + len(note.text) + _NOTE_GAP for index, note in self.notes.items())
        ends = max(map(len, self.document.margins), default=-1) + 1 if self.document else 0
        frame = _FRAME + self.styles.scrollbar_size_vertical
        return max(self.virtual_size.width + ends, self._margin + max(notes, default=0)) + frame

    @property
    def _margin(self) -> int:
        return len(str(max(self.count, 1))) + 3

    @property
    def count(self) -> int:
        return len(self.document.lines) if self.document and not self.document.note else 0

    def text_of(self, index: int) -> str:
        return self.document.lines[index] if self.document else ""

    def full_text(self) -> str:
        return "\n".join(self.document.lines) + "\n" if self.document else ""

    def draw_line(self, index: int) -> list[Segment]:
        palette = self.palette
        pieces = self.document.highlighter.line(index) if self.document else ()
        line = [Segment(text, role_style(kind, palette)) for text, kind in pieces]
        if (note := self.notes.get(index)) is not None and not self._is_named_at_margin(index, note):
            line.append(Segment(f"   {note.sign} ", role_style(note.role, palette)))
            line.append(Segment(note.text, role_style("dim", palette)))
        saved = self._saved_indent(index)
        return cut_columns(line, saved) if saved else line

    def _is_named_at_margin(self, index: int, note: SourceNote) -> bool:
        """Whether a line has no room for its finding: then its name stands at the right margin."""
        room = self._line_width - self._margin - _width(self.text_of(index))
        return room < _NOTE_GAP + len(note.name or note.text)

    def _saved_indent(self, index: int) -> int:
        """Return how much of a line's indentation is not drawn: half of it in generated code, which nests deeply."""
        if self.document is None or self.document.ref.kind != "kernel":
            return 0
        text = self.text_of(index)
        return (len(text) - len(text.lstrip(" "))) // 2

    def line_prefix(self, index: int) -> list[Segment]:
        number = f"{index + 1:>{self._margin - 3}}"
        places = self.links.keys_of(index)
        lit = index in self._highlighted
        place = self._highlighted.get(index) or (_color_key(places) if places else None)
        note = self.notes.get(index)
        guess = index in self.links.inferred
        mark = " " if place is None else ("▒" if guess else "█") if lit else "┆" if guess else "▌"
        if self.is_calling(index) and not lit:
            mark = "│"
        elif place is None and index in self.elsewhere:
            mark = "·"
        return [
            Segment(number, role_style("gutter", self.palette)),
            Segment(note.sign if note else " ", role_style(note.role if note else "gutter", self.palette)),
            Segment(f"{mark} ", Style(color=self._color_of(place))),
        ]

    def is_calling(self, index: int) -> bool:
        """Whether a line of source led to nodes only by what it calls."""
        return self.document is not None and self.document.ref.kind == "source" and index in self.links.callers

    @property
    def min_text_columns(self) -> int:
        return _MIN_CODE_COLUMNS if self.values or self.notes else super().min_text_columns

    def line_suffix(self, index: int) -> list[Segment]:
        if (value := self.values.get(index)) is not None:
            room = self._line_width - self._margin - min(self.min_text_columns, _width(self.text_of(index)) + 1)
            text = next((text for text in value.texts if cell_len(text) < room), value.texts[-1])
            return [Segment(f" {one_line(text)}", role_style(value.role, self.palette))]
        if (note := self.notes.get(index)) is not None and self._is_named_at_margin(index, note):
            return [Segment(f" {note.sign} ", role_style(note.role, self.palette)), Segment(note.name)]
        margins = self.document.margins if self.document else ()
        margin = margins[index] if index < len(margins) else ""
        return [Segment(f" {printable_code(margin)}", role_style("dim", self.palette))] if margin else []

    def line_background(self, index: int) -> Style | None:
        place = self._highlighted.get(index)
        is_called = place is None and index in self._called
        if place is None and not is_called:
            return None
        if self.palette == "terminal":  # its background is not known
            return Style(bold=True, dim=is_called)
        color = self._color_of(_color_key(self._keys(index)) if place is None else place)
        share = _CALLED_SHARE if is_called else _HIGHLIGHT_SHARE
        return Style(bgcolor=tint(color, self.background_colors[1].hex6, share))

    def _color_of(self, place: LineKey | None) -> str:
        return line_color(self.line_colors.get(place, 0) if place else 0, self.palette)


def is_kernel_line(place: LineKey) -> bool:
    """Whether a key is a line of a kernel and not a line of the user's source."""
    return place[0].startswith("event:")


@lru_cache(maxsize=8)
def _wrapped(note: str, columns: int) -> list[str]:
    return textwrap.wrap(note, columns)


def _color_key(places: Set[LineKey]) -> LineKey | None:
    """Return the key that colors a line: the source line if there is one. Other links may be shown by now."""
    return min(places, key=lambda place: (is_kernel_line(place), place), default=None)


def _width(line: str) -> int:
    """Return the approximate width of a line in columns. It is exact if that is cheap."""
    return len(line) + 3 * line.count("\t") if line.isascii() else cell_len(line)
