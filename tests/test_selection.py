"""What `make test` leaves out."""

from __future__ import annotations

from tests.selection import SHARE, chosen_list, left_out, long_tests


def test_long_tests_are_left_out_and_each_function_keeps_its_cheapest_case() -> None:
    names = ["a[1]", "a[2]", "b", "c[1]", "c[2]", "new"]
    seconds = {"a[1]": 9.0, "b": 5.0, "c[1]": 2.0, "c[2]": 1.5, "gone": 7.0}
    assert left_out(names, seconds) == {"a[1]", "b", "c[1]"}


def test_what_is_left_takes_its_share_of_the_time() -> None:
    measured = {f"{name}[{case}]": 0.01 * number * case for number, name in enumerate("abcdefgh") for case in range(9)}
    out = left_out(measured, chosen_list(measured))
    left = sum(seconds for name, seconds in measured.items() if name not in out)
    assert 0.25 * sum(measured.values()) < left <= SHARE * sum(measured.values())
    assert {name.partition("[")[0] for name in set(measured) - out} == set("abcdefgh")


def test_the_list_can_be_read() -> None:
    assert all(seconds > 0 and "::" in name for name, seconds in long_tests().items())
