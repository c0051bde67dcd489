"""Sources as the program writes them."""

from __future__ import annotations

import pytest

from dynadiag.recording.torch_text.sources import sizes_in


@pytest.mark.parametrize(
    ("expression", "sizes"),
    [
        ("L['x'].size()[0]", ("L['x'].size()[0]",)),
        ("2 <= L['x'].size()[1] <= 5", ("L['x'].size()[1]",)),
        ("(((-1) + (x.size()[1] // 2)) // 2) == (2*(x.size()[1] // 8))", ("x.size()[1]",)),
        ("256*L['a'][0].size()[0]*(self.w.size()[1]) < 2", ("L['a'][0].size()[0]", "self.w.size()[1]")),
        ("L['s'] > 0.0", ()),
        ("", ()),
        ("x" * 1_000_000 + ".size()[0]", ("x" * 1_000_000 + ".size()[0]",)),
        ("x.size()[" * 100_000, ()),
    ],
    ids=range(8),
)
def test_the_sizes_of_an_expression(expression: str, sizes: tuple[str, ...]) -> None:
    assert sizes_in(expression) == sizes
