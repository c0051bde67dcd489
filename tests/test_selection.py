"""What `make test` leaves out."""

from __future__ import annotations

from tests.selection import left_out, long_tests


def test_long_tests_are_left_out_and_each_function_keeps_its_cheapest_case() -> None:
    names = ["a[1]", "a[2]", "b", "c[1]", "c[2]", "new"]
    seconds = {"a[1]": 9.0, "b": 5.0, "c[1]": 2.0, "c[2]": 1.5, "gone": 7.0}
    assert left_out(names, seconds) == {"a[1]", "b", "c[1]"}


def test_the_list_can_be_read_and_names_tests_that_took_a_second_or_more() -> None:
    assert all(seconds >= 1 and "::" in name for name, seconds in long_tests().items())
