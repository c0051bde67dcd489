"""Code: numbered, coloured by what it is and by which lines belong together."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Set
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.strip import Strip

from tui.documents import Document
from tui.lexing import Highlighter
from tui.links import Links, Place
from tui.palette import line_colour, role_style, syntax_style, tint
from tui.widgets.lines import Lines

__all__ = ["CodePane", "is_exact"]

_LIT = 0.30  # share of a line's colour in the ground of those that belong to the line under the cursor
_EMPTY = Links()
_COMMENT = "# File: "  # what a printed graph has above the nodes of a line
_LOOKED_AT = 2000  # lit lines among which such a comment is looked for


class CodePane(Lines):
    """A document. A line with counterparts has a bar in its colour; those of the cursor's line are lit and marked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "app.edit", "open in $EDITOR at this line", show=False, id="code.edit"),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._document: Document | None = None
        self.links = _EMPTY
        self._colours: Mapping[Place, int] = {}
        self._highlighter = Highlighter((), ())
        self._lit: Mapping[int, Place] = {}
        self._note = ""

    @property
    def document(self) -> Document | None:
        return self._document

    def say(self, note: str) -> None:
        """Show no document, and why."""
        self._document, self.links, self._lit, self._note = None, _EMPTY, {}, note
        self.resize_content(0)

    def render_line(self, y: int) -> Strip:
        note = self._note or (self.document.note if self.document else "")
        if note:
            width = self.scrollable_content_region.width
            style = self.rich_style + role_style("dim", self.dark)
            rows = textwrap.wrap(note, max(width, 1))
            return Strip([Segment(rows[y] if y < len(rows) else "", style)]).crop_extend(0, width, style)
        return super().render_line(y)

    def show(self, document: Document, links: Links = _EMPTY, line: int = 0) -> None:
        """Show a document with the cursor on a line (0-based)."""
        self._document, self.links, self._lit, self._note = document, links, {}, ""
        self._highlighter = Highlighter(document.lines, document.regions)
        self.set_reactive(Lines.cursor, max(0, min(line, len(document.lines) - 1)))
        self.resize_content(max((_width(text) for text in document.lines), default=0) + self._margin)
        self.scroll_to(0, max(0, self.cursor - self.page_height // 3), animate=False, immediate=True, force=True)
        self.refresh()

    def colour(self, colours: Mapping[Place, int]) -> None:
        """Which colour each place has; one numbering for all panes."""
        self._colours = colours
        self.refresh()

    def light(self, places: Set[Place], *, reveal: bool) -> int:
        """Light the lines that belong to these places; how many there are."""
        lines = self.belonging(places)
        self._lit = {line: _main(self.links.of(line) & places) for line in lines}
        if reveal and lines:
            first = self.first_lit
            if not any(self.on_screen(line) for line in lines if line >= first):
                self.reveal(first, middle=True)
        self.refresh()
        return len(lines)

    def belonging(self, places: Set[Place]) -> tuple[int, ...]:
        """The lines that belong to these places; only those of a kernel's own line, where there are any."""
        return self.links.at([place for place in places if is_exact(place)]) or self.links.at(places)

    @property
    def first_lit(self) -> int:
        """Of the lit lines the one to look at: in a graph, where something is computed, and not an argument for it."""
        lines = self.lit
        heads = (line for line in lines[:_LOOKED_AT] if self.text_of(line).lstrip().startswith(_COMMENT))
        return next(heads, lines[0])

    @property
    def lit(self) -> list[int]:
        """The lines that are lit."""
        return sorted(self._lit)

    def on_screen(self, line: int) -> bool:
        """Whether a line is seen."""
        return int(self.scroll_y) <= line < int(self.scroll_y) + self.page_height

    @property
    def first_seen(self) -> int:
        """Of the lines on the screen the first that has a counterpart, or else the first."""
        top = int(self.scroll_y)
        seen = range(top, min(self.count, top + self.page_height))
        return next((line for line in seen if self.links.of(line)), top)

    @property
    def _margin(self) -> int:
        return len(str(max(self.count, 1))) + 3

    @property
    def count(self) -> int:
        return len(self.document.lines) if self.document and not self.document.note else 0

    def text_of(self, index: int) -> str:
        return self.document.lines[index] if self.document else ""

    def whole(self) -> str:
        return "\n".join(self.document.lines) + "\n" if self.document else ""

    def draw(self, index: int) -> Strip:
        dark = self.dark
        return Strip([Segment(text, syntax_style(kind, dark)) for text, kind in self._highlighter.line(index)])

    def side(self, index: int) -> Strip:
        number = f"{index + 1:>{self._margin - 3}}"
        places = self.links.of(index)
        lit = index in self._lit
        place = self._lit.get(index) or (_main(places) if places else None)
        guess = index in self.links.guessed
        mark = " " if place is None else ("▒" if guess else "█") if lit else "┆" if guess else "▌"
        return Strip(
            [
                Segment(f"{number} ", role_style("gutter", self.dark)),
                Segment(f"{mark} ", Style(color=self._colour_of(place))),
            ]
        )

    def ground(self, index: int) -> Style | None:
        place = self._lit.get(index)
        if place is None:
            return None
        return Style(bgcolor=tint(self._colour_of(place), self._surface(), _LIT))

    def _surface(self) -> str:
        return self.background_colors[1].hex6

    def _colour_of(self, place: Place | None) -> str:
        return line_colour(self._colours.get(place, 0) if place else 0, self.dark)


def is_exact(place: Place) -> bool:
    """Whether a place is one line of a kernel, and not one of the user's source."""
    return place[0].startswith("event:")


def _main(places: Set[Place]) -> Place:
    """The place that gives a line its colour: the user's, where there is one."""
    return min(places, key=lambda place: (is_exact(place), place))


def _width(line: str) -> int:
    """About how many columns a line takes; exact where that is cheap."""
    return len(line) + 3 * line.count("\t") if line.isascii() else cell_len(line)
