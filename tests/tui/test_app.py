"""The browser as a user drives it."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets._toast import Toast

import tui
from tests.hostile import HOSTILE
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.code_panes import CodePaneModel
from tui.location import source_place
from tui.session import Session
from tui.views import SCREENS, screen_named
from tui.views.code import CodeView
from tui.widgets.code_pane import CodePane
from tui.widgets.tree import Tree


def _app(pilot: object) -> Browser:
    app = pilot.app  # type: ignore[attr-defined]
    assert isinstance(app, Browser)
    return app


async def test_the_first_screen_says_what_to_look_at(program: Path) -> None:
    async with browsing(program) as pilot:
        text = screen(pilot)
    assert "torch 2.13.0" in text
    assert "Not one graph: 1 graph break in the way." in text
    assert "GB0059" in text
    assert "prog.py:8" in text
    assert "was 4, now 5" in text
    assert "3.0 s" in text


async def test_enter_goes_from_the_overview_to_the_break_and_to_its_line_and_back_returns(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "enter")
        assert _app(pilot).current.NAME == "breaks"
        assert "print(z.shape)" in screen(pilot)
        assert "^^^^^^^^^^^^^^" in screen(pilot)
        await press(pilot, "enter")
        pane = _app(pilot).focused
        assert isinstance(pane, CodePane)
        assert pane.text_of(pane.cursor) == "    print(z.shape)"
        await press(pilot, "backspace")
        assert _app(pilot).current.NAME == "breaks"
        await press(pilot, "backspace")
        assert _app(pilot).current.NAME == "overview"
        await press(pilot, "L")
        assert _app(pilot).current.NAME == "breaks"


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_every_screen_opens_by_its_number(program: Path, size: tuple[int, int]) -> None:
    async with browsing(program, size) as pilot:
        for one in SCREENS:
            await press(pilot, one.key)
            assert one.name == _app(pilot).current.NAME
            if one.name == "search":  # it asks what for
                await press(pilot, "escape")
            assert _app(pilot).focused is not None
            assert len(screen(pilot).strip().splitlines()) > 3


async def test_the_cursor_on_a_line_lights_its_lines_in_every_pane(program: Path) -> None:
    async with browsing(program, (200, 60)) as pilot:
        await press(pilot, "3")
        view = _app(pilot).current
        assert isinstance(view, CodeView)
        source = view.pane("source")
        source.move_to(6)  # z = torch.relu(y)
        await settle(pilot)
        lit = {name: [pane.text_of(i).strip() for i in pane.highlighted] for name, pane in view.panes().items()}
    assert lit["source"] == ["z = torch.relu(y)"]
    assert lit["dynamo"][-1] == "z = relu(y)"
    assert lit["later"][-1].startswith("relu = ")
    assert "extern_kernels.addmm(arg0_1)" in lit["kernel"]
    assert "cpp_fused_relu_1(arg0_1)" in lit["kernel"]


async def test_a_line_without_counterparts_says_so(program: Path) -> None:
    async with browsing(program, (200, 60)) as pilot:
        await press(pilot, "3")
        _app(pilot).current.query_one("#pane-source", CodePane).move_to(0)
        await settle(pilot)
        assert "no mapping" in screen(pilot)


async def test_enter_in_code_jumps_to_the_counterpart(program: Path) -> None:
    async with browsing(program, (200, 60)) as pilot:
        await press(pilot, "3")
        _app(pilot).current.query_one("#pane-source", CodePane).move_to(5)
        await press(pilot, "enter")
        pane = _app(pilot).focused
        assert isinstance(pane, CodePane)
        assert pane.id == "pane-dynamo"
        assert pane.text_of(pane.cursor) == "y = x.sin()"
        await press(pilot, "p")
        assert "= l_x_.sin()" in pane.text_of(pane.cursor), "the operator, not the comment above it"


async def test_enter_in_code_jumps_to_the_line_of_the_same_node(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CodePaneModel, "same_rows", lambda _self, _at, _row, pane: (1, 2) if pane == "dynamo" else ())
    async with browsing(program, (200, 60)) as pilot:
        await press(pilot, "3", "enter")
        pane = _app(pilot).focused
        assert isinstance(pane, CodePane)
        assert (pane.id, pane.cursor) == ("pane-dynamo", 1)


async def test_another_stage_is_shown_at_what_belongs_to_the_line(tmp_path: Path) -> None:
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0")]
    head, first, second = build.POST_GRAD.split("        # File: ")
    longer = f"{head}        # File: {second.rpartition('return')[0]}\n        # File: {first}        return (relu,)\n"
    name = {"name": "before_post_grad_graph", "encoding": "string"}
    events.insert(5, ({"artifact": name, **build.at("0/0")}, longer))
    async with browsing(build.recording(tmp_path, events), (200, 60)) as pilot:
        await press(pilot, "3")
        pane = _app(pilot).current.query_one("#pane-later", CodePane)
        pane.focus()
        pane.move_to(next(line for line in range(pane.count) if "= relu(" in pane.text_of(line)))
        before = pane.cursor
        await press(pilot, "left_square_bracket")
        assert pane.cursor != before
        assert "= relu(" in pane.text_of(pane.cursor)


async def test_the_cursor_is_seen_in_a_pane_that_was_scrolled_meanwhile(tmp_path: Path) -> None:
    body = "\n".join(f"    auto tmp{number} = 0;" for number in range(200))
    module = build.MODULE.replace("    auto tmp0 = in_ptr0[0];", body)
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0", module=module)]
    async with browsing(build.recording(tmp_path, events), (200, 40)) as pilot:
        await press(pilot, "3", "tab", "tab", "tab", "G", "shift+tab")
        pane = _app(pilot).current.query_one("#pane-kernel", CodePane)
        pane.scroll_to(y=60, animate=False)  # as the wheel does
        await press(pilot, "tab")
        assert pane.has_focus
        assert pane.is_line_visible(pane.cursor)
        assert "auto tmp" in pane.text_of(pane.cursor)


async def test_a_jump_shows_what_stands_around_its_line(tmp_path: Path) -> None:
    text = build.SOURCE + "# more\n" * 60
    events = [*build.run_events(), *build.source_events(text), *build.compile_events("0/0"), *build.end_events()]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "3")
        pane = _app(pilot).current.query_one("#pane-source", CodePane)
        for line in (1, 2, 4, 5, 40, 41, 20, pane.count - 4, pane.count - 3, pane.count - 1, pane.count):
            _app(pilot).go_to(source_place(build.FILE, line))
            await settle(pilot)
            top, bottom = int(pane.scroll_y), int(pane.scroll_y) + pane.page_height - 1
            assert pane.cursor == line - 1
            assert max(top, pane.cursor - 3) == max(0, pane.cursor - 3)
            assert min(bottom, pane.cursor + 3) == min(pane.count - 1, pane.cursor + 3)


async def test_search_finds_and_goes_on(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "3", "slash", *"size", "enter")
        pane = _app(pilot).focused
        assert isinstance(pane, CodePane)
        first = pane.cursor
        assert "size" in pane.text_of(first)
        await press(pilot, "right_curly_bracket")
        assert pane.cursor != first
        await press(pilot, "left_curly_bracket")
        assert pane.cursor == first


async def test_filter_keeps_matching_rows_and_escape_brings_all_back(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "7", "f", *"relu", "enter")
        table = _app(pilot).focused
        assert [row.cells[-1] for row in table.rows] == ["cpp_fused_relu_1", "cpp_fused_relu_1"]  # type: ignore[union-attr]
        await press(pilot, "escape")
        assert len(table.rows) == 6  # type: ignore[union-attr]


async def test_a_jump_arrives_where_a_filter_or_a_closed_branch_hides_the_place(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "4", "f", *"zebra", "enter", "1", "enter")
        assert _app(pilot).current.NAME == "breaks"
        assert "GB0059" in screen(pilot)
        assert "with zebra" not in screen(pilot)
        await press(pilot, "2", "E", "E", "1", "G", "enter")
        tree = _app(pilot).focused
        assert isinstance(tree, Tree)
        assert tree.branch is not None
        assert tree.branch.key.startswith("compile/")


async def test_help_lists_every_binding_of_the_screen(program: Path) -> None:
    async with browsing(program, (100, 130)) as pilot:
        await press(pilot, "3", "question_mark")
        text = screen(pilot)
        for words in ("show the previous one", "next match", "all actions", "open this line in $EDITOR"):
            assert words in text
        await press(pilot, "escape")
        assert "previous stage" not in screen(pilot).splitlines()[2]


async def test_a_small_terminal_gets_a_clear_word(program: Path) -> None:
    async with browsing(program, (20, 5)) as pilot:
        assert "too small" in screen(pilot)


@pytest.mark.parametrize("name", ["[/]", "[/nope]", "[@click=app.quit]x[/]", "[bold]"])
async def test_a_name_in_a_title_is_no_markup(name: str, tmp_path: Path) -> None:
    events = build.program()
    for data, _ in events:
        if "dynadiag_frame" in data:
            data["dynadiag_frame"].update(function=name, file=f"/x/{name}.py")
        if "compilation_metrics" in data:
            data["compilation_metrics"].update(co_name=name, co_filename=f"/x/{name}.py")
        if "dynadiag_source" in data:
            data["dynadiag_source"].update(file=f"/x/{name}.py")
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "6")
        assert f"Guards of 0/0 {name}" in screen(pilot)
        await press(pilot, "3")
        assert f"{name.rpartition('/')[2]}.py" in screen(pilot)
        await press(pilot, "0", *name, "enter")
        assert f"Search: {name}" in screen(pilot)


async def test_text_of_a_recording_is_shown_as_text(tmp_path: Path) -> None:
    nasty = "[bold red]x[/] \x1b[31m\x9b31m\u202e $(rm)"
    events = build.program()
    events[0][0]["dynadiag_run"]["target"] = nasty
    events[1] = (events[1][0], f"{nasty}\n" * 3 + build.SOURCE)
    path = build.recording(tmp_path, events)
    async with browsing(path) as pilot:
        assert "[bold red]x[/]" in screen(pilot)
        assert "\\x1b[31m" in screen(pilot)
        for number in range(1, 10):
            await press(pilot, str(number))
            assert not {"\x1b", "\x9b", "\u202e"} & set(screen(pilot))


async def test_other_separators_of_lines_end_no_line_of_code(tmp_path: Path) -> None:
    """`str.splitlines` ends lines at them: the links of a module with such a text were to lines that it has not."""
    events = [(header, text and text.replace("relu", HOSTILE)) for header, text in build.program()]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "3", "j", "tab", "tab", "G")
        for pane in pilot.app.query(CodePane):
            if pane.document is not None:
                assert all(0 <= line < pane.count for line in pane.links.keys)


async def test_a_link_opens_a_source_line(program: Path) -> None:
    with Session.open(program) as session:
        app = Browser(session, place="prog.py:7")
        async with app.run_test(size=(200, 60)) as pilot:
            await settle(pilot)
            pane = app.focused
            assert isinstance(pane, CodePane)
            assert pane.text_of(pane.cursor).strip() == "z = torch.relu(y)"


async def test_a_link_to_a_file_that_was_not_compiled_says_so(program: Path) -> None:
    with Session.open(program) as session:
        app = Browser(session, place="other.py:7")
        async with app.run_test(size=(200, 60), notifications=True) as pilot:
            await settle(pilot)
            assert app.current.NAME == "overview"
            assert "nothing of other.py:7 is in this recording" in screen(pilot)


async def test_a_page_key_in_the_palette_of_a_tiny_terminal_does_nothing(program: Path) -> None:
    async with browsing(program, (30, 8)) as pilot:
        await pilot.press("ctrl+p", "j", "down", "pageup", "pagedown", "escape", "escape")
        await settle(pilot)
        assert pilot.app.is_running


def test_a_browser_that_ends_with_an_error_says_so_in_its_exit_code(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(browser: Browser) -> None:
        browser._return_code = 1

    monkeypatch.setattr(Browser, "run", failed)
    assert tui.run([program]) == 1


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ("", ["print(z.shape)", "help: Move this out of the compiled function"]),
        ("enter enter", ["prog.py · line 8 of 13"]),
        ("3 enter enter enter", ["triton_poi_fused_sin_0"]),
        ("5", ["x.size()[0]", "4", "5"]),
        ("6", ["TENSOR_MATCH"]),
        ("7", ["triton_poi_fused_sin_0"]),
        ("question_mark", ["On this line", "GB0059"]),
        ("0 r e l u enter", ["Search: relu", "z = torch.relu(y)"]),
        ("3 tab v", ["│ y = sin │"]),
    ],
)
async def test_the_keys_of_the_tasks_lead_to_their_answers(keys: str, shown: list[str], program: Path) -> None:
    """The table of docs/browser.md."""
    async with browsing(program) as pilot:
        await press(pilot, *keys.split())
        for words in shown:
            assert words in screen(pilot)


async def test_a_screen_without_its_widgets_reads_nothing(program: Path) -> None:
    async with browsing(program) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        view = app._views["code"] = screen_named("code").create()  # it is being mounted
        app.session_replaced()  # as when the recording has grown meanwhile
        assert not view.busy
        del app._views["code"]


@pytest.mark.parametrize("name", [one.name for one in SCREENS])
async def test_a_screen_that_is_mounted_while_the_browser_ends_is_no_error(name: str, program: Path) -> None:
    async with browsing(program) as pilot:
        view = screen_named(name).create()
        view._id = "late"
        waiting = pilot.app.query_one("#views").mount(view)
        pilot.app._exit = True  # Textual mounts no widgets of the screen any more
        await waiting
        pilot.app._exit = False
        await settle(pilot)
        assert not view.children
        assert pilot.app._exception is None


async def test_what_is_read_while_the_browser_ends_is_not_shown(program: Path) -> None:
    async with browsing(program) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        await app.query("#tabs, #status").remove()
        app.update_counts()
        app.set_status("compile 0/0", "")


async def test_a_click_on_a_message_is_no_error(program: Path) -> None:
    async with browsing(program, (40, 10)) as pilot:
        await press(pilot, "c", "backspace")  # which has nowhere to go back to
        toast = next(iter(pilot.app.screen.query(Toast)))
        place, parent = toast.region.offset, toast._parent
        toast._parent = None  # as while it goes: it is still drawn
        await pilot.mouse_down(offset=place)
        toast._parent = parent
        await settle(pilot)
        assert pilot.app.is_running
