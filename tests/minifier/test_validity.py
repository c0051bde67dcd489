"""Which texts can run as a program, told without running them."""

from __future__ import annotations

import pytest

from minifier.source.validity import can_run


@pytest.mark.parametrize(
    "text",
    [
        "x: int = 3",
        "class Model:\n    width: int = 3\n    def forward(self, x: int) -> 'Model': return self",
    ],
)
def test_names_that_annotations_use_are_bound(text: str) -> None:
    assert can_run(text)


def test_a_name_that_nothing_binds_cannot_be_read() -> None:
    assert not can_run("def f(): return lost")
