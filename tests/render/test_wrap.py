"""Text in columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.render.clean import clean_line
from dynadiag.render.wrap import truncate_end, truncate_middle, width, wrap, wrap_indented


@given(st.text(max_size=300), st.integers(5, 60))
def test_no_line_is_wider_and_nothing_is_lost(text: str, columns: int) -> None:
    lines = wrap(text, columns)
    assert all(width(line) <= columns for line in lines)
    assert "".join(lines).replace(" ", "") == clean_line(text).replace(" ", "")


@given(st.text(max_size=300), st.integers(5, 60))
def test_a_word_that_fits_is_not_broken(text: str, columns: int) -> None:
    words = [word for word in clean_line(text).split(" ") if width(word) <= columns]
    found = " ".join(wrap(text, columns)).split(" ")
    assert all(word in found for word in words)


def test_a_long_word_is_broken_where_code_is() -> None:
    call = "torch._dynamo.config.reorderable_logging_functions.add(print)"
    assert wrap(f"`{call}`: it", 40) == ["`torch._dynamo.config.reorderable_", "logging_functions.add(print)`: it"]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=100), st.integers(1, 40))
def test_cut_fits_and_keeps_both_ends(text: str, columns: int) -> None:
    made = truncate_middle(text, columns)
    assert width(made) <= columns
    assert made == text or "…" in made


@given(st.text(max_size=100), st.integers(1, 40))
def test_a_cut_end_fits_and_keeps_the_beginning(text: str, columns: int) -> None:
    made = truncate_end(text, columns)
    assert width(made) <= columns
    assert made == text or (made.endswith("…") and text.startswith(made[:-1]))


def test_code_in_backquotes_stays_whole_where_it_fits() -> None:
    assert wrap("use `f(a, b)` or so", 12) == ["use", "`f(a, b)` or", "so"]
    assert wrap("`a b c d`", 5) == ["`a b", "c d`"]


def test_wide_characters_take_two_columns() -> None:
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert wrap("日本 日本 日本", 9) == ["日本 日本", "日本"]


def test_further_lines_hang_under_the_first() -> None:
    assert wrap_indented("help: ", "one two three", 13) == ["help: one two", "      three"]
    assert wrap_indented("help: ", "", 13) == ["help: "]
