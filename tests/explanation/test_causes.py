"""Root causes are distinguished from consequences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.explanation.breaks import group_breaks, roots
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.records import Break, Span
from tests.explanation.build import FILE, a_break


def test_the_same_site_and_type_is_one_cause_whoever_meets_it() -> None:
    met = [
        a_break(0, compile_id="0/0", function="forward"),
        a_break(1, compile_id="1/0", function="helper"),
        a_break(2, compile_id="0/1", function="forward"),
    ]
    assert [item.cause for item in group_breaks(met)] == [None, 0, 0]


def test_another_type_or_span_of_the_same_line_is_another_cause() -> None:
    met = [
        a_break(0),
        a_break(1, gb_type="Unsupported context manager"),
        a_break(2, span=Span(FILE, 3, 20, 3, 30)),
    ]
    assert [item.cause for item in group_breaks(met)] == [None, None, None]


def test_a_report_without_columns_joins_the_one_of_its_line() -> None:
    met = [a_break(0), a_break(1, span=Span(FILE, 3))]
    assert [item.cause for item in group_breaks(met)] == [None, 0]


def test_a_recorded_cause_is_kept_and_led_on_to_its_root() -> None:
    other = Span("/lib/x.py", 5, 0, 5, 4)
    met = [a_break(0), a_break(1, cause=0, span=other), a_break(2, span=other), a_break(3, cause=2)]
    assert [item.cause for item in group_breaks(met)] == [None, 0, 0, 0]


def test_a_cause_that_does_not_exist_or_comes_later_is_not_heeded() -> None:
    elsewhere = Span(FILE, 8, 0, 8, 1)
    met = [a_break(0, cause=1), a_break(1, cause=99, span=elsewhere)]
    assert [item.cause for item in group_breaks(met)] == [None, None]


def test_without_a_place_only_the_same_words_are_one_cause() -> None:
    nowhere = Span(None, None)
    met = [a_break(0, span=nowhere), a_break(1, span=nowhere), a_break(2, span=nowhere, reason="other")]
    assert [item.cause for item in group_breaks(met)] == [None, 0, None]


def test_resume_functions_carry_the_original_name() -> None:
    twice = "torch_dynamo_resume_in_torch_dynamo_resume_in_forward_at_3_at_5"
    assert original_name(twice) == "forward"
    assert original_name("Net.torch_dynamo_resume_in_forward_at_31") == "Net.forward"
    assert original_name("forward") == "forward"


_spans = st.builds(Span, st.sampled_from([FILE, None]), st.integers(1, 3), st.sampled_from([None, 0, 4]))
_causes = st.one_of(st.none(), st.integers(-1, 8))


@given(st.lists(st.tuples(_spans, _causes), max_size=8))
def test_every_cause_is_a_root_that_came_before(parts: list[tuple[Span, int | None]]) -> None:
    met: list[Break] = [a_break(i, span=span, cause=cause) for i, (span, cause) in enumerate(parts)]
    grouped = group_breaks(met)
    ids = {item.index for item in roots(grouped)}
    assert all(item.cause is None or (item.cause in ids and item.cause < item.index) for item in grouped)
    assert bool(ids) == bool(met)
    assert group_breaks(grouped) == grouped


def test_a_break_that_split_one_frame_and_was_raised_in_another_is_fatal() -> None:
    """A helper under `fullgraph=True` that another compiled function calls: it is inlined there, then fails alone."""
    split, raised = a_break(0), a_break(1, compile_id="1/0", fatal=True)
    (root,) = roots(group_breaks([split, raised]))
    assert (root.index, root.fatal) == (0, True)
    assert [item.fatal for item in group_breaks([split, raised])] == [False, True]
