"""The options of a recording that are read from text."""

from __future__ import annotations

import pytest

from dynadiag.capture.settings import parse_calls
from dynadiag.errors import DynadiagError


def test_calls_are_numbers_and_ranges() -> None:
    assert parse_calls("3, 10..12,7..7") == ((3, 3), (10, 12), (7, 7))


@pytest.mark.parametrize("text", ["", "x", "1,", "12..10", "-1", "1..2..3"])
def test_other_calls_are_refused(text: str) -> None:
    with pytest.raises(DynadiagError, match="give numbers and ranges"):
        parse_calls(text)
