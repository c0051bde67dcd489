"""The text of `dynadiag diff`."""

from __future__ import annotations

import pytest

from dynadiag.render.diff import without_alike

EIGHTH, QUARTER = "up.weight = placeholder: 0.125", "up.weight = placeholder: 0.25"


@pytest.mark.parametrize(
    ("before", "after", "room", "told"),
    [
        (EIGHTH, QUARTER, 20, ("up.weight …er: 0.125", "up.weight …er: 0.25")),
        (EIGHTH, QUARTER, 30, (EIGHTH, QUARTER)),  # there is room
        (EIGHTH, QUARTER, 6, ("up.…0.125", "up.…0.25")),  # what is left is cut at its end
        ("relu = relu: 0.125", "", 8, ("relu = relu: 0.125", "")),
    ],
)
def test_a_narrow_column_shows_the_word_that_differs(before: str, after: str, room: int, told: tuple[str, str]) -> None:
    assert without_alike(before, after, room, room // 2) == told
