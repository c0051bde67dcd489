"""Lines laid out in so many columns: nothing is lost, nothing is wider than the screen."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.tui.conftest import browsing, screen, settle
from tui.location import Location
from tui.styled_text import Line, line
from tui.widgets.styled_lines import wrap_lines

_TEXTS = st.lists(st.text(st.sampled_from("ab wx字→ "), max_size=40), max_size=6)


@given(_TEXTS, st.integers(20, 60))
def test_every_word_is_there_and_no_line_is_too_long(texts: list[str], columns: int) -> None:
    whole = line(*texts, to=Location("trials"))
    found = wrap_lines([whole], columns)
    assert all(cell_len(item.text) <= columns or not item.text.strip() for item in found)
    assert "".join("".join(item.text for item in found).split()) == "".join(whole.text.split())
    assert {item.target for item in found} == {whole.target}
    assert [item.continues for item in found] == [number > 0 for number in range(len(found))]


def test_what_fits_is_left_as_it_is() -> None:
    item = line("short", ("  as it is", "dim"))
    assert wrap_lines([item, Line()], 80) == [item, Line()]


async def test_the_overview_is_laid_out_again_in_another_width(program: Path) -> None:
    async with browsing(program, (120, 40)) as pilot:
        before = screen(pilot)
        assert "break[GB0059]: Failed to trace builtin operator" in before, "beside the list"
        await pilot.resize_terminal(60, 40)
        await settle(pilot)
        assert "Failed to trace\n       builtin operator  1 graph ended" in screen(pilot), "on two lines"
        await pilot.resize_terminal(120, 40)
        await settle(pilot)
        assert screen(pilot) == before


def test_a_path_is_broken_between_its_folders() -> None:
    path = "/usr/lib/python3.11/site-packages/transformers/models/gpt2/modeling.py:645"
    assert [item.text for item in wrap_lines([line(path)], 60)] == [
        "/usr/lib/python3.11/site-packages/transformers/models/",
        "    gpt2/modeling.py:645",
    ]
