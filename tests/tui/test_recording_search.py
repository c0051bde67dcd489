"""Searching the whole recording: what is found of each kind, where enter goes, stopping, hostile text."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.location import Location
from tui.recording_search import RecordingSearch
from tui.search_hits import Hit, group_hits
from tui.session import Session
from tui.views.search import SearchView
from tui.widgets.code_pane import CodePane


def _kinds(path: Path, pattern: str) -> dict[str, int]:
    with Session.open(path) as session:
        hunt = RecordingSearch(session, pattern)
        hunt.run()
        assert hunt.bytes_searched == session.recording.log_size
    return {kind: sum(hit.kind == kind for hit in hunt.hits) for kind in {hit.kind for hit in hunt.hits}}


@pytest.mark.parametrize(
    ("pattern", "kinds"),
    [
        ("builtin operator", {"break"}),
        ("size mismatch", {"recompile"}),
        ("TENSOR_MATCH", {"guard"}),
        ("cpp_fused_relu_1", {"kernel", "code"}),
        ("torch.ops.aten.relu", {"graph"}),
        ("for size in", {"source"}),
        ("compilation_metrics", {"event"}),
        ("triton.jit", {"code"}),
        ("0/1", {"compile"}),
    ],
)
def test_every_kind_of_thing_is_found(program: Path, pattern: str, kinds: set[str]) -> None:
    assert kinds <= set(_kinds(program, pattern))


def test_small_letters_find_large_ones_and_large_ones_only_themselves(program: Path) -> None:
    assert "guard" in _kinds(program, "tensor_match")
    assert not _kinds(program, "Tensor_Match")


def _view(app: object) -> SearchView:
    assert isinstance(app, Browser)
    assert isinstance(app.current, SearchView)
    return app.current


async def test_a_hit_in_a_graph_is_one_enter_away_and_back_returns_to_it(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "0", *"aten.relu.default", "enter")
        view = _view(pilot.app)
        assert "all searched" in screen(pilot)
        row = next(place for place, one in enumerate(view.table.rows) if one.cells[0] == "graph")
        view.table.move_to(row)
        await settle(pilot)
        assert "relu: " in "".join(line.text for line in view.details.lines)
        await press(pilot, "enter")
        pane = pilot.app.focused
        assert isinstance(pane, CodePane)
        assert pane.text_of(pane.cursor) == "relu = relu(sin)"
        await press(pilot, "backspace")
        assert _view(pilot.app).table.cursor == row


@pytest.mark.parametrize(
    ("pattern", "kind", "name"),
    [
        ("GB0059", "break", "breaks"),
        ("L['x']", "guard", "guards"),
        ("cpp_fused", "kernel", "kernels"),
        ("size mismatch", "recompile", "recompiles"),
        ("0/1", "compile", "compiles"),
        ("for size", "source", "code"),
        ("async_compile", "code", "code"),
        ("compilation_metrics", "event", "events"),
    ],
)
async def test_enter_goes_to_the_screen_of_what_was_found(program: Path, pattern: str, kind: str, name: str) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "0", "x")
        pilot.app.query_one("Input").value = pattern  # type: ignore[attr-defined]
        await press(pilot, "enter")
        view = _view(pilot.app)
        view.table.move_to(next(place for place, one in enumerate(view.table.rows) if one.cells[0] == kind))
        await press(pilot, "enter")
        assert isinstance(pilot.app, Browser)
        assert name == pilot.app.current.NAME


async def test_what_is_not_there_is_said(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "0", *"nowhere", "enter")
        assert "not found: nowhere" in screen(pilot)
        await press(pilot, "slash", *"sin", "enter")
        assert _view(pilot.app).table.count > 3


async def test_a_search_is_stopped_by_a_key_and_by_another_search(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "0", "x", "enter")
        view = _view(pilot.app)
        first = view.search
        assert first is not None
        first.finished = False  # as if it went on
        await pilot.press("x")
        assert first.stopped
        first.finished = True
        view.begin("relu")
        second = view.search
        assert second is not None
        view.begin("sin")
        assert second.stopped
        await settle(pilot)
        assert view.search is not None
        assert not view.search.stopped


def test_of_each_kind_so_many_are_kept_and_it_is_said(tmp_path: Path) -> None:
    source = "\n".join(f"x{number} = needle" for number in range(50))
    events = [*build.run_events()]
    for _ in range(20):
        events += [*build.source_events(source)]
    with Session.open(build.recording(tmp_path, events)) as session:
        hunt = RecordingSearch(session, "needle")
        hunt.run()
    assert len(hunt.hits) == 500
    assert hunt.truncated_kinds == ["source"]


async def test_hostile_text_is_found_and_shown_as_text(tmp_path: Path) -> None:
    nasty = "[bold red]x[/] \x1b[31m\x9b31m\u202e $(rm)"
    events = build.program()
    events[1] = (events[1][0], f"{nasty}\n" * 3 + build.SOURCE)
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "0")
        pilot.app.query_one("Input").value = "[bold red]"  # type: ignore[attr-defined]
        await press(pilot, "enter")
        text = screen(pilot)
        assert "[bold red]x[/]" in text
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)


async def test_hits_and_cursor_stay_while_a_recording_that_has_grown_is_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = [*build.run_events(), *build.source_events()]
    path = build.recording(tmp_path, [*begin, *build.compile_events("0/0")])
    async with browsing(path) as pilot:
        await press(pilot, "0", *"sin", "enter", "j")
        view = _view(pilot.app)
        before, group = len(view._listed_hits), view._group(view.table.key or 0)
        assert before > 2
        assert group is not None
        path.unlink()
        build.recording(tmp_path, [*begin, *build.compile_events("0/0"), *build.compile_events("1/0")])
        may_go_on, search = Event(), RecordingSearch.run

        def held(hunt: RecordingSearch) -> None:
            may_go_on.wait()
            search(hunt)

        monkeypatch.setattr(RecordingSearch, "run", held)
        first = view.search
        await pilot.press("r")
        while view.search is first:
            await pilot.pause(0.01)
        assert (len(view._listed_hits), view._group(view.table.key or 0)) == (before, group)
        may_go_on.set()
        await settle(pilot)
        assert len(view._listed_hits) > before
        after = view._group(view.table.key or 0)
        assert after is not None
        assert after.hits[0] == group.hits[0]


def test_hits_of_an_operator_are_one_row_and_raw_events_the_last_one() -> None:
    def hit(kind: str, where: str, text: str, operator: str = "") -> Hit:
        return Hit(kind, "0/0", where, text, Location("code"), ("a.py:6", operator) if operator else ("", ""))

    hits = [
        hit("event", "chromium_event", "relu"),
        hit("graph", "dynamo:5", "z = torch.relu(y)", "relu"),
        hit("graph", "post_grad:7", "relu = torch.ops.aten.relu.default(sin)", "relu"),
        hit("graph", "post_grad:9", "sin_1 = torch.ops.aten.sin.default(relu)", "sin"),
        hit("event", "describe_tensor", "relu"),
        hit("kernel", "a.py:6", "cpp_fused_relu_1"),
    ]
    groups = group_hits(hits)
    assert [(group.kind, len(group.hits)) for group in groups] == [
        ("kernel", 1),
        ("graph", 2),
        ("graph", 1),
        ("event", 2),
    ]
    assert groups[1].where == "a.py:6"
    assert groups[1].first == 1


async def test_the_places_of_a_group_are_listed_beside_it(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "0", *"relu", "enter")
        view = _view(pilot.app)
        rows = [row.cells for row in view.table.rows]
        assert rows[0][0] == "kernel"
        at = next(place for place, row in enumerate(rows) if row[0] == "graph" and row[3] != "1")
        view.table.move_to(at)
        await press(pilot, "tab", "j", "enter")
        assert pilot.app.current.NAME == "code"  # type: ignore[attr-defined]


async def test_what_is_searched_is_told_in_full_at_80_columns(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "0")
        assert "generated code, events" in " ".join(screen(pilot).split())
