"""The breaks: what each costs in a warm call, in a column of its own, where that was measured."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

import dynadiag
from dynadiag.explanation.runtime_cost import WARM, CodeRun, WarmCalls
from dynadiag.recording.records import Span
from tests.tui import build
from tests.tui.conftest import browsing, press, screen
from tui.app import Browser
from tui.styled_report import span_text
from tui.views.breaks import BreaksView


def _titles(app: object) -> list[str]:
    assert isinstance(app, Browser)
    assert isinstance(app.current, BreaksView)
    return [column.title for column in app.current.columns()]


def _profiled(folder: Path) -> Path:
    """The program, with a profile of its warm calls: 5 µs after the graph that the break ends, 7 µs into the next."""
    ended = CodeRun("0/0", None, calls=1, graphs=1, guard=1e-6, before=2e-6, after=5e-6, operators=0, launches=0)
    went_on = CodeRun("0/1", "0/0", calls=1, graphs=1, guard=4e-6, before=3e-6, after=0, operators=0, launches=0)
    profile = WarmCalls(10, 40e-6, 0.0, 0.0, (ended, went_on))
    return build.recording(folder, [*build.program(), ({WARM: {}}, msgspec.json.encode(profile).decode())])


async def test_a_break_is_told_with_the_code_that_it_blames(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "4")
        assert "GB0059  print(z.shape)  Failed to trace" in screen(pilot)


async def test_where_columns_are_cut_the_ids_of_compiles_take_no_room_from_what_broke(tmp_path: Path) -> None:
    breaks = [event for number in range(8) for event in build.break_events(f"{number}/0")]
    path = build.recording(tmp_path, [*build.run_events(), *build.source_events(), *breaks, *build.end_events()])
    async with browsing(path) as pilot:
        await press(pilot, "4")
        assert "print(z.shape)  Failed to trace builtin operator" in screen(pilot).split("detail")[0]
        assert "0/0, 1/0" in screen(pilot).split("detail")[0]


def test_the_code_that_is_blamed_is_short() -> None:
    sources: dict[str, str | None] = {"a.py": "if x.sum() > 0:\n    call(\n        x)\n" + "y" * 99}
    assert span_text(sources, Span("a.py", 1, 3, 1, 14)) == "x.sum() > 0"
    assert span_text(sources, Span("a.py", 2, 4, 3, 10)) == "call(…"
    assert span_text(sources, Span("a.py", 4, 0, 4, 99)) == "y" * 40 + "…"
    for unknown in (Span("a.py", 1), Span("b.py", 1, 0, 1, 3), Span(None, None), Span("a.py", 9, 0, 9, 3)):
        assert span_text(sources, unknown) == ""


async def test_a_recording_without_a_profile_has_no_column_for_it(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "4")
        assert "µs a call" not in _titles(pilot.app)


async def test_what_a_break_costs_stands_in_its_row_and_in_its_detail(tmp_path: Path) -> None:
    async with browsing(_profiled(tmp_path)) as pilot:
        await press(pilot, "4")
        assert _titles(pilot.app)[-2:] == ["µs a call", "compiles"]
        text = screen(pilot)
        row = next(line for line in text.splitlines() if "GB0059" in line)
        assert "12.0" in row
        assert "12.0 µs of a warm call's 40.0 µs" in " ".join(text.split())


async def test_a_break_in_a_library_is_told_at_the_line_of_the_program_that_leads_there(tmp_path: Path) -> None:
    library = "/env/lib/python3.11/site-packages/edgelib/pool.py"
    (head, _), reason = build.break_events("0/0")
    frames = [
        {"file": build.FILE, "line": 8, "function": "f"},
        {"file": library, "line": 7, "function": "pool"},
    ]
    head = {**head, "dynadiag_break": {**head["dynadiag_break"], "file": library, "line": 7, "callers": frames}}
    path = build.recording(tmp_path, [*build.run_events(), *build.source_events(), (head, None), reason])
    async with browsing(path) as pilot:
        assert f"GB0059  {build.FILE.rpartition('/')[2]}:8" in screen(pilot)
        await press(pilot, "4")
        assert "prog.py:8" in screen(pilot).split("detail")[0]
        await press(pilot, "enter")
        assert " 8⚠" in screen(pilot)


def _fails(x: torch.Tensor) -> torch.Tensor:
    return x.view(7)


async def test_an_exception_is_listed_and_is_no_graph_break_of_the_tab(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag"), pytest.raises(Exception, match="shape"):
        torch.compile(_fails, backend="eager")(torch.ones(3))
    async with browsing(tmp_path / "run.dynadiag") as pilot:
        assert "0 graph breaks" in screen(pilot)
        await press(pilot, "4")
        assert "4 Breaks  5 Recompiles" in screen(pilot)
        assert pilot.app.query_one(BreaksView).table.count == 1
