"""The time line of a compile."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tui.overview import PARTS
from tui.timeline import Phase, pair_events, timeline_lines


def _event(kind: str, name: str, time: float) -> dict[str, Any]:
    return {"ph": kind, "name": name, "ts": time * 1e6, "tid": 0}


def test_phases_are_nested_and_measured() -> None:
    found = pair_events([_event("B", "a", 10), _event("B", "b", 11), _event("E", "b", 12), _event("E", "a", 14)])
    assert [(one.name, one.depth, one.start, one.seconds) for one in found] == [("a", 0, 0.0, 4.0), ("b", 1, 1.0, 1.0)]


def test_a_phase_without_an_end_lasts_until_the_last_event() -> None:
    found = pair_events([_event("B", "a", 10), _event("i", "hit", 13)])
    assert [(one.name, one.seconds) for one in found] == [("a", 3.0)]


def test_an_end_without_a_beginning_is_left_out() -> None:
    assert pair_events([_event("E", "a", 1)]) == []


def test_nothing_recorded_is_said() -> None:
    assert "no time line" in timeline_lines([])[0].text


def test_phases_have_the_colours_of_the_overview() -> None:
    names = (
        "entire",
        "_compile.compile_inner",
        "bytecode_tracing",
        "OutputGraph.call_user_compiler",
        "compile_fx_inner",
    )
    found = [
        Phase(name, depth, 0.0, 1.0) for depth, name in enumerate((*names, "GraphLowering.compile_to_module", "x"))
    ]
    colours = [item.fragments[1][1] for item in timeline_lines([*found, Phase("build_guards", 2, 0.0, 1.0)])[1:]]
    expected = ("other", "dynamo", "dynamo", "aot", "inductor", "codegen", "codegen", "dynamo")
    assert colours == [PARTS[part][1] for part in expected]


@given(st.lists(st.tuples(st.sampled_from("BEi"), st.sampled_from("abc"), st.floats(0, 1e6)), max_size=40))
def test_any_log_gives_bars_of_one_width(events: list[tuple[str, str, float]]) -> None:
    lines = timeline_lines(pair_events(_event(*one) for one in events))
    bars = [item.fragments[1][0] for item in lines[1:] if len(item.fragments) == 3]
    assert {len(bar) for bar in bars} <= {24}
