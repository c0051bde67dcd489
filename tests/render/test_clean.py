"""No control character of a recording reaches a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.render.clean import clean, clean_line

_anything = st.text(st.characters(codec=None), max_size=200)


@given(_anything)
def test_no_control_or_format_character_is_left(text: str) -> None:
    left = {unicodedata.category(char) for char in clean(text)} - {"Cc"}
    assert not left & {"Cf", "Cs", "Co", "Zl", "Zp"}
    assert {char for char in clean(text) if unicodedata.category(char) == "Cc"} <= {"\n", "\t"}


@given(_anything)
def test_a_clean_line_is_one_line_that_prints(text: str) -> None:
    line = clean_line(text)
    assert line.splitlines() in ([], [line])
    assert clean_line(line) == line
    line.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb", "a\\rb"),
        ("\u202egpj", "\\u202egpj"),
        ("\ud800", "\\ud800"),
        ("\x9b2J", "\\x9b2J"),
        ("\U000e0041", "\\U000e0041"),
        ("日本 é", "日本 é"),
        ("a\tb\nc", "a\tb\nc"),
    ],
)
def test_what_is_unsafe_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert clean(text) == shown
