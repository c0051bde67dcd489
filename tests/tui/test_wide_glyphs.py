"""Texts whose characters take two columns: what stands beside them stays where it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.tui import build
from tests.tui.conftest import browsing, press, screen
from tui.terminal_driver import encodable

WIDE = build.SOURCE.replace("y = x.sin()", 'y = x.sin()  # 日本語 🎉 "한국어"')


def _recording(folder: Path) -> Path:
    events = [*build.break_events("0/0"), *build.compile_events("0/0")]
    events[0][0]["dynadiag_break"]["function"] = "前向き🎉"
    again = build.recompile_events("0/1", "4", "5")
    again[0][0]["dynadiag_recompile"]["function"] = "前向き"
    return build.recording(
        folder, [*build.run_events(), *build.source_events(WIDE), *events, *again, *build.end_events()]
    )


def _column(text: str, part: str) -> int:
    return cell_len(text.partition(part)[0])


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_no_screen_has_a_row_of_another_width(size: tuple[int, int], tmp_path: Path) -> None:
    async with browsing(_recording(tmp_path), size) as pilot:
        for keys in ("1", "2", "3", "4", "5", "6", "3 l l l", "3 z"):
            await press(pilot, *keys.split())
            strips = pilot.app.screen._compositor.render_strips()
            assert {strip.cell_length for strip in strips} == {size[0]}, keys
            assert {cell_len(strip.text) for strip in strips} == {size[0]}, keys


async def test_columns_and_frames_stay_where_they_are(tmp_path: Path) -> None:
    async with browsing(_recording(tmp_path)) as pilot:
        await press(pilot, "4")
        head, row = (next(text for text in screen(pilot).splitlines() if part in text) for part in ("graphs", "前向き"))
        assert _column(row, "前向き") == _column(head, "in  ")
        assert row.rstrip().endswith("│")
        await press(pilot, "3")
        plain, wide = (
            next(text for text in screen(pilot).splitlines() if part in text) for part in ("torch.relu", "日本語")
        )
        assert _column(plain, "││") == _column(wide, "││")
        assert "↻" in wide


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_does_not_have_is_ascii_of_the_same_width(encoding: str) -> None:
    text = "╭─ ✓ 3 µs ▸ 日本 é ⏎"
    shown = encodable(text, encoding)
    assert shown.encode(encoding)
    assert shown.startswith("+- + 3 ")
    assert cell_len(shown) == cell_len(text)
    assert encodable(text, "utf-8") == text
