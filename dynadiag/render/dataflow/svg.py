"""A drawn graph as SVG. Text of the recording is escaped and never becomes an element."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.render.dataflow.boxes import FoldedGraph, GraphBox
from dynadiag.render.dataflow.layout import Rectangle, lay_out
from dynadiag.render.wrap import width

MAX_BOXES = 600  # nobody can read a picture of more
_CELL = (8, 16)  # pixels of a cell of the layout
_MARGIN = 8  # pixels around the picture
_PADDING = 4  # columns of a box beside its text, with its frame
_MIN_WIDTH = 9  # columns

STYLE = """
svg { --ground: #ffffff; --text: #1b1f24; --dim: #57606a; --input: #dbeafe; --region: #fff1a8; --box: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  svg { --ground: #0d1117; --text: #e6edf3; --dim: #9da7b1; --input: #173356; --region: #5c4a00; --box: #161b22; }
}
.ground { fill: var(--ground); } .box rect { fill: var(--box); stroke: var(--dim); }
.box.input rect { fill: var(--input); } .box.region rect { fill: var(--region); stroke-width: 2; }
.box text { fill: var(--text); font: 12px monospace; text-anchor: middle; } .box .detail { fill: var(--dim); }
.line { fill: none; stroke: var(--dim); } .head { fill: var(--dim); }
"""


def box_size(box: GraphBox) -> tuple[int, int]:
    """The columns and rows of a box with its frame."""
    return max(width(box.title), width(box.detail), _MIN_WIDTH - _PADDING) + _PADDING, 4 if box.detail else 3


def graph_svg(
    graph: FoldedGraph,
    *,
    style: str = STYLE,
    shown_file: Callable[[str], str] = str,
    lines_of: Callable[[GraphBox], Collection[SourceLine]] = lambda box: box.sources,
) -> str:
    """The picture of a graph. A page that has its own style passes an empty one.

    Each box is a group of class ``box``. Its attribute ``data-lines`` has the source lines of ``lines_of``, one
    ``FILE:LINE`` a line, with the file name that ``shown_file`` returns.
    """
    layout = lay_out({key: box_size(box) for key, box in graph.boxes.items()}, graph.edges)
    wide, high = (side * cell + 2 * _MARGIN for side, cell in zip((layout.width, layout.height), _CELL, strict=True))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-_MARGIN} {-_MARGIN} {wide} {high}" '
        f'width="{wide}" height="{high}" role="img" aria-label="graph with {len(graph.boxes)} boxes">',
        f"<style>{style}</style>" if style else "",
        f'<rect class="ground" x="{-_MARGIN}" y="{-_MARGIN}" width="{wide}" height="{high}"/>' if style else "",
        *(_line(points) for points in layout.lines.values()),
        *(
            part
            for key, box in graph.boxes.items()
            for part in _box(box, layout.boxes[key], [f"{shown_file(line.file)}:{line.line}" for line in lines_of(box)])
        ),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _line(points: Sequence[tuple[int, int]]) -> str:
    """A line from the lower edge of its source to the upper edge of its target, with a head."""
    across, down = _CELL
    places = [(x * across + across // 2, y * down + down // 2) for x, y in points]
    (x, _), bottom = places[-1], points[-1][1] * down
    path = " ".join(f"{at},{row}" for at, row in [*places[:-1], (x, bottom)])
    return (
        f'<polyline class="line" points="{path}"/>'
        f'<polygon class="head" points="{x - 3},{bottom - 6} {x + 3},{bottom - 6} {x},{bottom}"/>'
    )


def _box(box: GraphBox, place: Rectangle, sources: Sequence[str]) -> Iterator[str]:
    across, down = _CELL
    x, y, wide, high = place.x * across, place.y * down, place.width * across, place.height * down
    lines = "\n".join(sorted(sources))
    yield f'<g class="box {box.kind}" data-lines={quoteattr(lines)}>'
    yield f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="4"/>'
    middle, row = x + wide // 2, y + (high - 14 * bool(box.detail)) // 2 + 4
    yield f'<text x="{middle}" y="{row}">{escape(box.title)}</text>'
    if box.detail:
        yield f'<text class="detail" x="{middle}" y="{row + 16}">{escape(box.detail)}</text>'
    yield "</g>"
