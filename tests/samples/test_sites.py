"""Every form of break site: the id, the line, the columns, in one program in which each is marked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dynadiag
from tests.samples.running import explained, span_text

SITES = Path(__file__).with_name("sites.py")
_MARK = re.compile(r"# (?P<id>GB\d+): (?P<span>.+)$")
MARKED = {
    number: (match["id"], match["span"])
    for number, line in enumerate(SITES.read_text().splitlines(), 1)
    if (match := _MARK.search(line))
}


def test_the_roots_are_the_marked_sites_with_their_spans() -> None:
    roots = [item for item in explained(SITES).roots if item["file"] == str(SITES)]
    assert {item["line"]: (item["gb_id"], span_text(item)) for item in roots} == MARKED
    assert len(roots) == len(MARKED)


@pytest.mark.parametrize(("file", "column"), [("<cell 1>", 24), ("<made>", None)])
def test_code_from_a_string_has_its_line_and_columns_only_where_its_text_is_known(
    file: str, column: int | None
) -> None:
    (item,) = [item for item in explained(SITES).roots if item["file"] == file]
    assert (item["gb_id"], item["line"], item["function"]) == ("GB0025", 3, "in_cell")
    assert item["column"] == column


def test_every_break_is_one_event_of_the_trace_or_the_exception_of_fullgraph() -> None:
    breaks = explained(SITES).document["breaks"]
    with dynadiag.open(explained(SITES).recording) as recording:
        events = sum(1 for _ in recording.events(kind="artifact", name="dynamo_graph_break_reason"))
    assert sum(not item["fatal"] for item in breaks) == events
    assert [item["function"] for item in breaks if item["fatal"]] == ["whole"]


def test_a_frame_that_was_left_to_python_has_no_graph() -> None:
    for function in ("in_generator", "in_try", "in_for", "in_while"):
        assert not explained(SITES).graphs(function), function


def test_a_break_in_an_inlined_function_has_one_root_and_the_callers_in_its_stack() -> None:
    (root,) = [item for item in explained(SITES).roots if item["gb_id"] == "GB0124"]
    assert [frame["function"] for frame in root["user_stack"]][-3:] == ["nested", "middle", "innermost"]
