"""Large recordings: a key press reads what it shows, and no more of it is drawn than fits the screen."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dynadiag.kernels.graph_parser import split_lines
from tests.tui import build
from tests.tui.conftest import browsing, counting, press, screen
from tui.app import Browser
from tui.recording_search import MAX_HITS
from tui.session import Session
from tui.views import kernels
from tui.views.search import SearchView
from tui.widgets.code_pane import CodePane
from tui.widgets.lines import Lines
from tui.widgets.table import LazyRows, Row, Table
from tui.widgets.tree import Tree

DETAIL = 10  # rows at most that a row's detail reads, which a busy machine may read twice
KEYS = ("2", "j", "G", "3", "j", "tab", "G", "4", "5", "6", "G", "7", "j", "9", "tab", "G", "k")


def _many(folder: Path, compiles: int) -> Path:
    events = [*build.run_events(), *build.source_events()]
    for frame in range(compiles):
        events += [*build.break_events(f"{frame}/0"), *build.compile_events(f"{frame}/0")]
        events += [*build.recompile_events(f"{frame}/1", "4", "5"), *build.compile_events(f"{frame}/1")]
    return build.recording(folder, [*events, *build.end_events()], f"many{compiles}")


def _with_kernels(folder: Path, count: int) -> Path:
    """A recording of one compile with so many kernels of C++."""
    definition, rest = build.MODULE[build.MODULE.index("cpp_fused_relu_1 =") :].split("class Runner")
    more = "".join(definition.replace("relu_1", f"relu_{number}") for number in range(2, count + 1))
    module = build.MODULE.replace(f"class Runner{rest}", f"{more}class Runner{rest}")
    events = [*build.run_events(), *build.compile_events("0/0", module=module), *build.end_events()]
    return build.recording(folder, events, f"kernels{count}")


async def _rows_read(path: Path) -> list[int]:
    async with browsing(path) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        counter, read = counting(app.session), []
        for key in KEYS:
            before = counter.rows_read
            await press(pilot, key)
            read.append(counter.rows_read - before)
    return read


def test_what_the_first_screen_waits_for_does_not_grow_with_the_kernels(tmp_path: Path) -> None:
    read = []
    for count in (1, 100):
        with Session.open(_with_kernels(tmp_path, count)) as session:
            counter = counting(session)
            session.explanation()
            read.append(counter.rows_read)
            assert session.kernel_count == len(session.all_kernels()) >= count
    assert read[0] == read[1]


async def test_a_table_makes_the_rows_that_are_seen(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "5")
        table, made = pilot.app.query_one("#recompiles-list", Table), set()

        def make(index: int) -> Row:
            made.add(index)
            return Row((f"{index}/0", "f", "prog.py:5", f"size {index}"), index)

        table.show(LazyRows(100_000, make))
        await press(pilot, "G")
        assert "size 99999" in screen(pilot)
        assert len(made) < 300
        await press(pilot, "s", "S", "g")
        assert table.key == 99_999


async def test_a_key_press_reads_as_much_of_a_large_recording_as_of_a_small_one(tmp_path: Path) -> None:
    small, large = await _rows_read(_many(tmp_path, 20)), await _rows_read(_many(tmp_path, 120))
    rows_a_compile = {"3": 2, "7": 26}  # Code marks the lines of all compiles, Kernels reads the code of all
    for key, of_small, of_large in zip(KEYS, small, large, strict=True):
        if key == "9":  # the first screen of events shows a page of them, of which a small log may have fewer
            assert of_large <= 2 * 100 + 10  # two pages
        else:
            more = rows_a_compile.get(key, 0) * (120 - 20)
            assert abs(of_large - of_small - more) <= DETAIL, key


@pytest.mark.slow
async def test_100000_nodes_and_lines_are_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 50_000
    graph = split_lines(build.DYNAMO)[:3]
    for number in range(count):
        graph += ["", f"        # File: {build.FILE}:{6 + number % 2} in f, code: y = x.sin()"]
        graph += [f'        y_{2 * number}: "f32[4][1]cpu" = l_x_.sin()']
        graph += [f'        y_{2 * number + 1}: "f32[4][1]cpu" = torch.relu(y_{2 * number})']
    body = "\n".join(f"    auto tmp{number} = 0;" for number in range(2 * count))
    module = build.MODULE.replace("    auto tmp0 = in_ptr0[0];", body)
    events = [*build.run_events(), *build.source_events()]
    events += build.compile_events("0/0", graph="\n".join(graph), module=module)
    drawn = 0
    draw = Lines.render_line

    def counting(self: Lines, y: int) -> object:
        nonlocal drawn
        drawn += 1
        return draw(self, y)

    async with browsing(build.recording(tmp_path, events), (160, 40)) as pilot:
        await press(pilot, "3", "tab")
        pane = pilot.app.focused
        assert isinstance(pane, CodePane)
        assert pane.count > 2 * count
        monkeypatch.setattr(Lines, "render_line", counting)
        await press(pilot, "G")
        assert drawn < 40 * 40  # a few screens, of four panes each
        assert f"y_{2 * count - 1}" in screen(pilot)
        await press(pilot, "slash", *"99998 =", "enter")
        assert pane.text_of(pane.cursor).startswith("y_99998 =")
        await press(pilot, "tab", "tab", "G")
        assert "return" in screen(pilot)


@pytest.mark.slow
async def test_10000_compiles_stand_in_one_tree_without_a_widget_each(tmp_path: Path) -> None:
    events = [*build.run_events(), *build.source_events()]
    for number in range(10_000):
        events += [event for event in build.compile_events(f"{number}/0") if not event[1]]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "2", "G")
        tree = pilot.app.query_one(Tree)
        assert tree.count == 10_001
        assert "9999/0" in screen(pilot)
        assert len(pilot.app.screen.query("*")) < 60
        await press(pilot, "f", *"777/0", "enter")
        assert tree.count == 11  # 777, 1777 ... 9777 and the call above them


async def test_10000_guards_on_one_frame(tmp_path: Path) -> None:
    guards = ["", "TREE_GUARD_MANAGER:", "+- RootGuardManager"]
    for number in range(10_000):
        source = f"L['self']._modules['{number % 100}'].w{number}"
        guards += [f"| +- GuardManager: source={source}, accessed_by=X()", f"| | +- TYPE_MATCH: check({number})"]
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0")]
    events = [(data, "\n".join(guards) if "dynamo_cpp_guards_str" in data else text) for data, text in events]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "6")
        await press(pilot, "G")  # once they are read
        assert "check(9999)" in screen(pilot)
        await press(pilot, "v")  # at the same guard
        assert "check(9999)" in screen(pilot)
        await press(pilot, "g", "l", "j", "l", "j")
        assert "10,000 guards" in screen(pilot)
        assert "100 guards" in screen(pilot)


@pytest.mark.slow
async def test_10000_compiles_are_searched_and_their_30000_kernels_sorted(tmp_path: Path) -> None:
    events = [*build.run_events(), *build.source_events()]
    for number in range(10_000):
        events += build.compile_events(f"{number}/0")
    async with browsing(build.recording(tmp_path, events)) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        await press(pilot, "0", *"torch.relu", "enter")
        view = app.current
        assert isinstance(view, SearchView)
        assert "all searched · of graph the first 500" in str(view.table.border_title)
        assert len(view.table.rows) < 4 * MAX_HITS
        counter = counting(app.session)
        await press(pilot, "7", "G", "s", "f", *"cpp", "enter")
        assert counter.rows_read < 10
        assert app.query_one("#kernels-list", Table).count == 10_000


@pytest.mark.slow
async def test_a_line_far_down_in_100000_is_searched_and_gone_to(tmp_path: Path) -> None:
    body = "\n".join(f"    auto tmp{number} = 0;" for number in range(100_000))
    module = build.MODULE.replace("    auto tmp0 = in_ptr0[0];", body)
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0", module=module)]
    async with browsing(build.recording(tmp_path, events), (160, 40)) as pilot:
        await press(pilot, "0", *"tmp98765 ", "enter")
        await press(pilot, "enter")  # once it is found
        pane = pilot.app.focused
        assert isinstance(pane, CodePane)
        assert pane.text_of(pane.cursor) == "    auto tmp98765 = 0;"


async def test_the_rows_of_all_kernels_are_made_beside_the_thread_of_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting them once their bytes are known asks for each: a key that is pressed meanwhile would wait."""
    made: Counter[bool] = Counter()
    make = kernels._row

    def counted(*arguments: Any, **more: Any) -> Row:
        made[threading.current_thread() is threading.main_thread()] += 1
        return make(*arguments, **more)

    monkeypatch.setattr(kernels, "_row", counted)
    async with browsing(_with_kernels(tmp_path, 1_000)) as pilot:
        await press(pilot, "7")
        assert pilot.app.query_one("#kernels-list", Table).whole_count > 1_000
    assert made[False] > 1_000
    assert made[True] < 900
