"""What stands on the overview."""

from __future__ import annotations

from dynadiag.explain.timing import PARTS, Share
from dynadiag.render import summary
from tui import overview


def test_every_part_of_the_compiler_has_a_word_and_a_colour() -> None:
    """A compile whose code came from the cache ended the browser: its part had neither."""
    assert set(overview._PARTS) == set(summary._PARTS) == set(PARTS)
    shares = tuple(Share(part, 1.0) for part in PARTS)
    drawn = overview._bar(shares, float(len(PARTS)), 12, pad=False)
    assert [style for _, style in drawn] == [overview._PARTS[part][1] for part in PARTS]
