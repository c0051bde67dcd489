"""Where the boxes and lines of a drawn graph stand: nothing overlaps, and no line leads to a wrong box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.render.dataflow.layout import Layout, lay_out

Edge = tuple[str, str]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, tuple[int, int]], list[Edge]]:
    names = [f"n{number}" for number in range(draw(st.integers(1, 14)))]
    sizes = {name: (draw(st.integers(7, 30)), draw(st.sampled_from([3, 4]))) for name in names}
    pairs = list(combinations(names, 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=24)) if pairs else []
    return sizes, edges


def cells(points: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], str]]:
    """The cells that a line passes, with the direction of the line there; a corner has both directions."""
    for (x, y), (to_x, to_y) in pairwise(points):
        assert x == to_x or y == to_y
        for at_x in range(min(x, to_x), max(x, to_x) + 1):
            for at_y in range(min(y, to_y), max(y, to_y) + 1):
                yield (at_x, at_y), "down" if x == to_x else "across"


def shared_cells(layout: Layout) -> list[tuple[Edge, Edge, tuple[int, int]]]:
    """The cells in which lines with neither a source nor a target in common run the same way.

    Where both targets read both sources there are four lines, and what two of them share tells nothing wrong.
    """
    owners: dict[tuple[tuple[int, int], str], list[Edge]] = {}
    for edge, points in layout.lines.items():
        for cell in set(cells(points)):
            owners.setdefault(cell, []).append(edge)
    return [
        (one, other, place)
        for (place, _), edges in owners.items()
        for one, other in combinations(edges, 2)
        if one[0] != other[0]
        and one[1] != other[1]
        and not {(one[0], other[1]), (other[0], one[1])} <= layout.lines.keys()
    ]


@given(graphs())
def test_boxes_stand_apart_and_lines_lead_from_box_to_box(graph: tuple[dict[str, tuple[int, int]], list[Edge]]) -> None:
    sizes, edges = graph
    layout = lay_out(sizes, edges)
    assert {name: (box.width, box.height) for name, box in layout.boxes.items()} == sizes
    for one, other in combinations(layout.boxes.values(), 2):
        across = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert across or one.y + one.height <= other.y or other.y + other.height <= one.y
    assert set(layout.lines) == set(edges)
    for (source, target), points in layout.lines.items():
        first, last = layout.boxes[source], layout.boxes[target]
        assert points[0] == (first.middle, first.y + first.height - 1)
        assert points[-1][1] == last.y
        assert last.x < points[-1][0] < last.x + last.width - 1
        inner = {place for place, _ in cells(points)} - {points[0], points[-1]}
        for box in layout.boxes.values():
            assert not any(box.x <= x < box.x + box.width and box.y <= y < box.y + box.height for x, y in inner), (
                "a line passes a box"
            )


@given(graphs())
def test_lines_that_have_nothing_in_common_only_cross(graph: tuple[dict[str, tuple[int, int]], list[Edge]]) -> None:
    assert not shared_cells(lay_out(*graph))


@pytest.mark.parametrize(
    "edges",
    [
        pytest.param("0-10 6-10 6-11 8-10 8-11 9-11", id="a third line comes to two boxes that read the same two"),
        pytest.param("3-6 1-5 3-4 1-6 4-6 2-5 4-5 2-3", id="a long line comes to two boxes that read the same two"),
        pytest.param("3-4 0-5 1-4 1-6 0-6 1-5 6-7", id="one of two sources goes to a third box"),
    ],
)
def test_lines_that_wait_for_each_other_only_cross(edges: str) -> None:
    pairs = [(f"n{source}", f"n{target}") for source, target in (edge.split("-") for edge in edges.split())]
    for width in (7, 9, 22):
        assert not shared_cells(lay_out({f"n{number}": (width, 3) for number in range(12)}, pairs))


def test_an_edge_against_the_order_is_left_out() -> None:
    layout = lay_out({"a": (9, 3), "b": (9, 3)}, [("b", "a"), ("a", "a"), ("a", "b"), ("a", "b")])
    assert list(layout.lines) == [("a", "b")]


def test_nothing_has_no_size() -> None:
    assert lay_out({}, []) == Layout({}, {}, 0, 0)
