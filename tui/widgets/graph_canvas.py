"""A graph drawn with the characters of a terminal. One box is selected, and its lines are brighter than the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from dynadiag.render.dataflow.boxes import FoldedGraph, GraphBox
from dynadiag.render.dataflow.layout import Layout, Rectangle, lay_out
from dynadiag.render.dataflow.svg import box_size
from tui.colors import palette_of, role_style
from tui.styled_text import one_line

Cell = tuple[str, str]  # a character, empty to the right of a wide one, and its role

_NORTH, _EAST, _SOUTH, _WEST = 1, 2, 4, 8
_LINES = " ╵╶└╷│┌├╴┘─┴┐┤┬┼"  # the character of each set of directions
_HEAD = "▼"
_FRAMES = {"input": "╭─╮│╰╯┬", "operator": "┌─┐│└┘┬", "region": "╔═╗║╚╝╤"}
_ROLES = {"input": "gutter", "operator": "", "region": "strong"}


def drawn_graph(graph: FoldedGraph, layout: Layout, selected: str) -> list[list[Cell]]:
    rows = [[(" ", "")] * layout.width for _ in range(layout.height)]
    lines = sorted(layout.lines.items(), key=lambda item: selected in item[0])  # the bright ones over the others
    marks: dict[tuple[int, int], int] = {}
    for edge, points in lines:
        role = "key" if selected in edge else "dim"
        for place, directions in _cells(points):
            marks[place] = marks.get(place, 0) | directions
            rows[place[1]][place[0]] = _LINES[marks[place]], role
    for edge, points in lines:
        x, y = points[-1]
        rows[y - 1][x] = _HEAD, "key" if selected in edge else "dim"
    starts = {points[0] for points in layout.lines.values()}
    for key, box in layout.boxes.items():
        _draw_box(rows, graph.boxes[key], box, starts, chosen=key == selected)
    return rows


def _cells(points: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
    """Each cell that a line passes below its source and above its target, and the directions in which it leaves it."""
    path = [points[0]]
    for x, y in points[1:]:
        while path[-1] != (x, y):
            at_x, at_y = path[-1]
            path.append((at_x + (x > at_x) - (x < at_x), at_y + (y > at_y) - (y < at_y)))
    for before, here, after in zip(path, path[1:], path[2:], strict=False):
        yield here, _direction(here, before) | _direction(here, after)


def _direction(here: tuple[int, int], there: tuple[int, int]) -> int:
    if there[0] != here[0]:
        return _EAST if there[0] > here[0] else _WEST
    return _SOUTH if there[1] > here[1] else _NORTH


def _draw_box(
    rows: list[list[Cell]], box: GraphBox, place: Rectangle, starts: set[tuple[int, int]], *, chosen: bool
) -> None:
    left_top, across, right_top, down, left_bottom, right_bottom, port = tuple(_FRAMES[box.kind])
    role = "title" if chosen else _ROLES[box.kind]
    inner = place.width - 2
    bottom = place.y + place.height - 1
    below = "".join(port if (place.x + 1 + at, bottom) in starts else across for at in range(inner))
    texts = [(box.title, "chosen" if chosen else role), (box.detail, "chosen" if chosen else "dim")]
    _write(rows, place.x, place.y, f"{left_top}{across * inner}{right_top}", role)
    for number, (text, text_role) in enumerate(texts[: place.height - 2]):
        shown = one_line(text)
        space = inner - cell_len(shown)
        padded = f"{' ' * (space // 2)}{shown}{' ' * (space - space // 2)}"
        _write(rows, place.x, place.y + 1 + number, down, role)
        _write(rows, place.x + 1, place.y + 1 + number, padded, text_role)
        _write(rows, place.x + place.width - 1, place.y + 1 + number, down, role)
    _write(rows, place.x, bottom, f"{left_bottom}{below}{right_bottom}", role)


def _write(rows: list[list[Cell]], x: int, y: int, text: str, role: str) -> None:
    for char in text:
        for part in (char, *[""] * (cell_len(char) - 1)):
            rows[y][x] = part, role
            x += 1


class GraphCanvas(Widget, can_focus=True):
    """Shows a drawn graph, with the selected box in the middle where the picture is larger than the widget."""

    class Clicked(Message):
        """A box was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__()
        self._layout_of_graph = Layout({}, {}, 0, 0)
        self._rows: list[list[Cell]] = []
        self._selected = ""

    def show(self, graph: FoldedGraph, selected: str) -> None:
        self._selected = selected
        self._layout_of_graph = lay_out({key: box_size(box) for key, box in graph.boxes.items()}, graph.edges)
        self._rows = drawn_graph(graph, self._layout_of_graph, selected)
        self.refresh()

    @property
    def places(self) -> dict[str, Rectangle]:
        return dict(self._layout_of_graph.boxes)

    @property
    def text(self) -> str:
        return "".join("".join(char for char, _ in row).rstrip() + "\n" for row in self._rows)

    def _corner(self) -> Offset:
        """The cell of the picture that is in the upper left corner of the widget."""
        place = self._layout_of_graph.boxes.get(self._selected, Rectangle(0, 0, 0, 0))
        size = self.scrollable_content_region.size
        return Offset(
            _start(place.middle, size.width, self._layout_of_graph.width),
            _start(place.y + place.height // 2, size.height, self._layout_of_graph.height),
        )

    def render_line(self, y: int) -> Strip:
        width, corner = self.scrollable_content_region.width, self._corner()
        row = corner.y + y
        if not 0 <= row < len(self._rows):
            return Strip.blank(width, self.rich_style)
        runs = groupby(self._rows[row], lambda cell: cell[1])
        chosen, palette = Style(bold=True, reverse=True), palette_of(self.app.theme)
        segments = [
            Segment("".join(char for char, _ in run), chosen if role == "chosen" else role_style(role, palette))
            for role, run in runs
        ]
        return Strip(segments).crop_extend(corner.x, corner.x + width, None).apply_style(self.rich_style)

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is not None:
            x, y = at + self._corner()
            for key, box in self._layout_of_graph.boxes.items():
                if box.x <= x < box.x + box.width and box.y <= y < box.y + box.height:
                    self.post_message(self.Clicked(key))


def _start(middle: int, room: int, whole: int) -> int:
    """Where to begin so that `middle` is in the middle; a small picture is in the middle as a whole."""
    return (whole - room) // 2 if whole <= room else max(0, min(middle - room // 2, whole - room))
