"""From spans to the uses of compiled code: profiles drawn by hand, and the sums that hold for any."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.compare.profile_spans import CALL, GRAPH, ProfileSpan, compile_ids_run, warm_calls
from dynadiag.explanation.runtime_cost import CodeRun, WarmCalls
from dynadiag.torch_private.operator_profile import CACHE_LOOKUP, COMPILED_REGION


def code(compile_id: str, start: float, end: float) -> ProfileSpan:
    return ProfileSpan(COMPILED_REGION + compile_id, start, end)


# One call: 0/0 calls its graph, then Python for 5 with an operator in it, and the rest of it goes on as 1/0.
BROKEN = [
    ProfileSpan(CALL, 0, 40),
    ProfileSpan(CACHE_LOOKUP, 1, 3),
    code("0/0", 4, 38),
    ProfileSpan(GRAPH, 6, 12),
    ProfileSpan("aten::sin", 7, 9),
    ProfileSpan("aten::item", 13, 15),
    ProfileSpan("aten::_local_scalar_dense", 13.5, 14.5),
    ProfileSpan(CACHE_LOOKUP, 17, 18),
    code("1/0", 19, 37),
    ProfileSpan(GRAPH, 20, 35),
    ProfileSpan("cudaLaunchKernel", 21, 22),
]


def use(found: WarmCalls, compile_id: str) -> CodeRun:
    (item,) = [one for one in found.uses if one.compile_id == compile_id]
    return item


def test_time_is_laid_to_the_code_that_it_passes_in() -> None:
    found = warm_calls(BROKEN)
    first, rest = use(found, "0/0"), use(found, "1/0")
    assert (first.parent, first.calls, first.graphs, first.guard) == (None, 1, 1, 2)
    assert (first.before, first.after) == (2, 34 - 6 - 18 - 1 - 2)
    assert (first.operators, first.launches) == (1, 0)  # not what is in the graph, nor what is part of another
    assert (rest.parent, rest.guard, rest.before, rest.after) == ("0/0", 1, 1, 2)
    assert (found.calls, found.seconds, found.outside) == (1, 40, 40 - 34 - 2)


def test_a_look_up_that_finds_nothing_is_time_of_the_code_that_made_it() -> None:
    found = warm_calls(
        [ProfileSpan(CALL, 0, 20), code("0/0", 0, 20), ProfileSpan(GRAPH, 1, 2), ProfileSpan(CACHE_LOOKUP, 3, 7)]
    )
    assert (use(found, "0/0").before, use(found, "0/0").after) == (1, 18)


def test_code_without_a_graph_of_its_own_has_all_its_time_after() -> None:
    found = warm_calls(
        [ProfileSpan(CALL, 0, 20), code("0/0", 0, 20), ProfileSpan(CACHE_LOOKUP, 3, 4), code("1/0", 5, 15)]
    )
    assert (use(found, "0/0").before, use(found, "0/0").after) == (0, 9)


def test_calls_are_a_median_in_time_and_a_mean_in_number() -> None:
    calls = []
    for start, seconds in ((0, 10), (20, 12), (40, 90)):
        calls += [ProfileSpan(CALL, start, start + seconds), code("0/0", start, start + seconds)]
    found = warm_calls([*calls, code("1/0", 42, 44), code("1/0", 45, 47), code("1/0", 48, 49)])
    assert (found.calls, use(found, "0/0").after, found.seconds) == (3, 12, 12)
    assert (use(found, "1/0").calls, use(found, "1/0").after) == (1, 0)


def test_what_is_around_the_calls_does_not_count() -> None:
    found = warm_calls(
        [ProfileSpan("aten::mul", 0, 1), code("9/0", 2, 3), ProfileSpan(CALL, 5, 6), ProfileSpan("aten::mul", 7, 8)]
    )
    assert (found.uses, found.outside_operators) == ((), 0)


def test_a_profile_without_a_call_says_so() -> None:
    with pytest.raises(ValueError, match="no call"):
        warm_calls([code("0/0", 0, 1)])


def test_the_ids_of_what_ran_are_told_once() -> None:
    assert compile_ids_run([*BROKEN, *BROKEN]) == ("0/0", "1/0")


@st.composite
def nested(draw: st.DrawFn, depth: int = 4) -> list[tuple[str, int, list[Any]]]:
    """A list of ``(name, ticks, inside)``, each a span with ticks of its own around what is inside."""
    names = st.sampled_from(
        [
            COMPILED_REGION + "0/0",
            COMPILED_REGION + "1/0",
            COMPILED_REGION + "2/0",
            CACHE_LOOKUP,
            GRAPH,
            "aten::add",
            "other",
        ]
    )
    inside: st.SearchStrategy[list[Any]] = st.just([]) if depth == 0 else nested(depth - 1)
    one = st.tuples(names, st.integers(1, 9), inside)
    return draw(st.lists(one, max_size=3))


def laid_out(drawn: list[tuple[str, int, list[object]]], clock: float) -> tuple[list[ProfileSpan], float]:
    spans: list[ProfileSpan] = []
    for name, ticks, inside in drawn:
        begin, clock = clock, clock + ticks
        below, clock = laid_out([] if name in (GRAPH, CACHE_LOOKUP) else inside, clock)  # type: ignore[arg-type]
        clock += ticks
        spans += [ProfileSpan(name, begin, clock), *below]
    return spans, clock + 1


@given(nested())
def test_of_one_call_the_parts_add_up_to_the_whole(drawn: list[tuple[str, int, list[object]]]) -> None:
    spans, end = laid_out(drawn, 1)
    found = warm_calls([ProfileSpan(CALL, 0, end), *spans])
    in_graphs = sum(span.seconds for span in spans if span.name == GRAPH)
    parts = found.outside + sum(use.guard + use.before + use.after for use in found.uses)
    assert parts + in_graphs == pytest.approx(found.seconds)
    assert msgspec.convert(msgspec.to_builtins(found), WarmCalls) == found
