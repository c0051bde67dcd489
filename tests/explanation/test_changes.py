"""The changes that failed guards show."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.explanation.changes import causes, changes, nearest_entry_failures, own_failures, without_consequences
from dynadiag.recording.records import GuardFailure
from tests.explanation.build import a_failure


def size(dimension: int, was: int, now: int, against: str = "0/0", name: str = "L['x']") -> GuardFailure:
    return a_failure("g", source=f"{name}.size()[{dimension}]", was=str(was), now=str(now), against=against)


def stride(dimension: int, was: int, now: int, against: str = "0/0", name: str = "L['x']") -> GuardFailure:
    return a_failure("g", source=f"{name}.stride()[{dimension}]", was=str(was), now=str(now), against=against)


def dtype(against: str = "0/0") -> GuardFailure:
    return a_failure("g", source="L['x'].dtype", was="torch.float32", now="torch.bfloat16", against=against)


def test_the_same_change_against_several_entries_is_one() -> None:
    found = changes([size(1, was, 233, f"1/{i}") for i, was in ((7, 144), (6, 89), (5, 144))])
    assert [(item.was, item.fact.now, item.against) for item in found] == [
        (("144", "89"), "233", ("1/7", "1/6", "1/5"))
    ]


def test_what_was_measured_at_different_places_or_to_different_values_is_apart() -> None:
    assert len(changes([size(0, 4, 5), size(1, 4, 5), size(0, 4, 6), dtype()])) == 4


def test_conditions_are_kept_apart_by_their_text() -> None:
    texts = ("L['x'].size()[0] <= 5", "L['x'].size()[0] == 4")
    found = changes([a_failure(text, source="L['x'].size()[0]", was=text, now="6") for text in texts])
    assert [item.fact.guard for item in found] == list(texts)


def test_a_stride_that_grew_with_a_size_is_no_change_of_its_own() -> None:
    grown = [size(1, 5, 8), stride(0, 5 * 16, 8 * 16)]
    assert without_consequences(grown) == (grown[0],)
    both = [size(1, 2, 3), size(2, 5, 7), stride(0, 10, 21), stride(1, 5, 7)]
    assert without_consequences(both) == tuple(both[:2])


def test_a_stride_that_changed_otherwise_is_one() -> None:
    transposed = (size(0, 3, 4), size(1, 4, 3), stride(0, 4, 1), stride(1, 1, 3))
    assert without_consequences(transposed) == transposed
    of_another = (size(1, 5, 8, name="L['y']"), stride(0, 5, 8))
    assert without_consequences(of_another) == of_another
    in_another_entry = (size(1, 5, 8, "0/1"), stride(0, 5, 8, "0/0"))
    assert without_consequences(in_another_entry) == in_another_entry


def test_an_entry_that_failed_by_more_than_another_tells_nothing() -> None:
    by_both, by_size = (dtype("0/1"), size(0, 8, 12, "0/1")), (size(0, 8, 12, "0/0"),)
    assert nearest_entry_failures([*by_both, *by_size]) == by_size
    assert nearest_entry_failures([dtype("0/1"), *by_size]) == (dtype("0/1"), *by_size)


def test_an_entry_came_no_nearer_for_a_consequence_that_another_does_not_name() -> None:
    def autocast(against: str) -> GuardFailure:
        setting = "autocast(cpu)_enabled"
        return a_failure(f"GLOBAL_STATE changed: {setting}", source=setting, was="False", now="True", against=against)

    keys = a_failure("g", source="L['x']", was="dispatch keys CPU", now="dispatch keys CPU, AutocastCPU", against="0/1")
    reasons = (autocast("0/1"), keys, autocast("0/0"), size(0, 2, 5))
    assert own_failures(reasons) == (reasons[0],)


_failures = st.lists(
    st.one_of(
        st.builds(
            size, st.integers(0, 2), st.integers(0, 9), st.integers(0, 9), st.sampled_from(["0/0", "0/1", "0/2"])
        ),
        st.builds(stride, st.integers(0, 2), st.integers(0, 9), st.integers(0, 9), st.sampled_from(["0/0", "0/1"])),
        st.builds(dtype, st.sampled_from(["0/0", "0/1", "0/2"])),
        st.builds(lambda text: a_failure(text, now="1"), st.text(max_size=8)),
    ),
    max_size=8,
)


@given(_failures)
def test_something_is_left_of_what_failed_and_nothing_new(reasons: list[GuardFailure]) -> None:
    near = nearest_entry_failures(reasons)
    own = without_consequences(near)
    assert bool(near) == bool(reasons)
    assert nearest_entry_failures(near) == near
    assert without_consequences(own) == own
    assert set(own) <= set(near) <= set(reasons)


@given(_failures)
def test_every_entry_stays_named(reasons: list[GuardFailure]) -> None:
    named = {entry for item in changes(reasons) for entry in item.against}
    assert named == {reason.against for reason in reasons}


def _alike(part: str, *sources: str) -> list[GuardFailure]:
    values = {"was": "length 0", "now": "length 1"}
    return [replace(a_failure("g", source=each, **values), subject=each, part=part) for each in sources]


def test_what_all_layers_of_a_list_have_is_one_cause() -> None:
    """Switching an adapter changes one attribute in each layer."""
    layers = [f"L['fn']._modules['{number}'].active" for number in range(3)]
    assert len(causes(changes(_alike("length", *layers)))) == 1
    assert len(causes(changes(_alike("value", *(f"{each}[0]" for each in layers))))) == 1
    assert len(causes(changes(_alike("length", "L['batch'][0]", "L['batch'][1]")))) == 2


def test_the_hooks_of_a_module_are_one_cause() -> None:
    hooks = "L['self']._modules['linear']._forward_hooks"
    assert len(causes(changes(_alike("presence", f"{hooks}[0]", f"{hooks}_with_kwargs[0]")))) == 1


def test_a_buffer_that_came_explains_that_there_are_more() -> None:
    came, more = [*_alike("presence", "L['self'].mean"), *_alike("length", "L['self']._buffers")]
    assert without_consequences([came, more]) == (came,)
