"""The keys in the last line: those of what has the focus, each action once; a click is a press."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from textual import events
from textual.command import CommandList
from textual.pilot import Pilot
from textual.widgets import Input

from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.command_palette import Palette
from tui.key_queue import MOST_AHEAD
from tui.views.code import CodeView
from tui.widgets.keys import Keys
from tui.widgets.lines import Lines


async def test_the_keys_are_those_of_the_screen(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "2")
        assert "v time line" in screen(pilot).splitlines()[-1]
        await press(pilot, "6")
        last = screen(pilot).splitlines()[-1]
        assert "v tree, list" in last
        assert "time line" not in last
        assert last.count("? help") == 1


async def test_keys_that_would_do_nothing_here_are_not_shown(program: Path, tmp_path: Path) -> None:
    failed = build.recording(tmp_path, [*build.run_events(), *build.source_events(), *build.end_events(1)])
    for path, offered in ((program, True), (failed, False)):
        async with browsing(path) as pilot:
            await press(pilot, "3")
            keys = screen(pilot).splitlines()[-1]
            assert [word in keys for word in ("assembly", "picture")] == [offered] * 2
            await press(pilot, "7")
            assert ("u time" in screen(pilot).splitlines()[-1]) == offered


async def test_keys_of_code_are_those_of_the_current_pane(program: Path, tmp_path: Path) -> None:
    words = ("] stage", "d diff", ". finding", "a assembly")
    async with browsing(program) as pilot:
        await press(pilot, "3")
        assert [word in screen(pilot).splitlines()[-1] for word in words] == [False, False, True, True]
        await press(pilot, "tab")
        assert [word in screen(pilot).splitlines()[-1] for word in words] == [False, False, True, True]
    graphs = [
        ({"artifact": {"name": f"{stage}_pre_grad_graph", "encoding": "string"}}, build.DYNAMO)
        for stage in ("before", "after")
    ]
    bare = [event for event in build.compile_events("0/0") if "inductor_output_code" not in event[0]]
    bare[3:3] = [({**data, **build.at("0/0")}, text) for data, text in graphs]
    made = build.recording(tmp_path, [*build.run_events(), *bare, *build.end_events()])
    async with browsing(made) as pilot:
        await press(pilot, "3", "tab", "tab")
        assert [word in screen(pilot).splitlines()[-1] for word in words] == [True, True, False, False]
    only = [event for event in bare if "artifact" not in event[0]]
    async with browsing(build.recording(tmp_path, [*build.run_events(), *only, *build.end_events()], "only")) as pilot:
        await press(pilot, "3", "tab", "tab")  # no later graph
        assert not any(word in screen(pilot).splitlines()[-1] for word in words)


async def test_no_key_for_the_rows_of_a_list_that_has_none(program: Path, tmp_path: Path) -> None:
    empty = build.recording(tmp_path, [*build.run_events(), *build.end_events()])
    for path, offered in ((program, True), (empty, False)):
        async with browsing(path) as pilot:
            for key, words in (
                ("2", ("go", "find", "filter", "time line")),
                ("4", ("go", "find", "filter")),
                ("5", ("go", "find", "filter")),
                ("6", ("go", "find", "filter", "tree, list", "J/K compile")),
                ("7", ("go", "find", "filter", "time")),
            ):
                await press(pilot, key)
                keys = screen(pilot).splitlines()[-1]
                assert [word in keys for word in words] == [offered] * len(words), (key, keys)


async def test_a_list_that_cannot_be_filtered_does_not_offer_it(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "9")
        assert "filter" not in screen(pilot).splitlines()[-1]
        await press(pilot, "shift+tab")
        assert "filter" in screen(pilot).splitlines()[-1]


async def test_the_search_of_the_recording_is_offered_without_hits(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "0", *"zebra", "enter")
        keys = screen(pilot).splitlines()[-1]
        assert "/ find" in keys
        assert "filter" not in keys


async def test_a_click_on_a_key_is_a_press_of_it(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "4")
        last = screen(pilot).splitlines()[-1]
        await pilot.click(Keys, offset=(last.index("back"), 0))
        await settle(pilot)
        assert isinstance(pilot.app, Browser)
        assert pilot.app.current.NAME == "overview"


async def test_a_search_shows_its_matches_while_it_is_typed(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "3", "slash", *"re")
        assert " 1 of 2" in screen(pilot)
        assert screen(pilot).splitlines()[-1].split() == ["⏎", "done", "esc", "cancel"]
        await press(pilot, "l")
        assert " 1 of 1" in screen(pilot)
        await press(pilot, "escape")
        lines = pilot.app.focused
        assert isinstance(lines, Lines)
        assert (lines.cursor, lines.matcher.pattern) == (5, "")
        await press(pilot, "slash", *"re", "enter", "right_curly_bracket")
        assert "re: 2 of 2" in screen(pilot)


async def test_a_filter_works_while_it_is_typed_and_escape_takes_it_back(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "7", "f", *"sin")
        assert "2 of 6" in screen(pilot)
        assert "cpp_fused_relu_1" not in screen(pilot)
        await press(pilot, "escape")
        assert "cpp_fused_relu_1" in screen(pilot)


async def test_help_explains_the_words_of_the_line(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "question_mark")
        text = screen(pilot)
        assert text.index("On this line") < text.index("GB0059") < text.index("Everywhere")
        await press(pilot, "escape", "3", "tab", "tab", "question_mark")
        assert "Kernels are generated from this one." in screen(pilot)


async def test_escape_goes_back_where_there_is_nothing_to_clear(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "4", "f", *"print", "enter", "escape")
        assert isinstance(pilot.app, Browser)
        assert pilot.app.location.view == "breaks"
        await press(pilot, "escape")
        assert pilot.app.location.view == "overview"
        await press(pilot, "escape")
        assert pilot.app.location.view == "overview"


async def test_what_the_palette_finds_while_it_is_closed_is_no_error(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "colon")
        found = pilot.app.screen
        assert isinstance(found, Palette)
        gone = found.query_one(CommandList)
        await gone.remove()  # the list goes first, the dialog around it later
        assert found.is_attached
        found._refresh_command_list(gone, [], clear_current=True)


@pytest.mark.parametrize(("burst", "asked"), [("fcpp", "cpp"), ("/relu\r", "relu"), ("0relu\r", "relu")])
async def test_letters_sent_at_once_go_to_the_prompt_that_the_first_opens(
    burst: str, asked: str, program: Path
) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "7")
        for letter in burst:
            key = {"\r": "enter", "/": "slash"}.get(letter, letter)
            pilot.app.post_message(events.Key(key, letter))
        await settle(pilot)
        assert asked in screen(pilot)
        lines = pilot.app.focused
        if burst.startswith("/"):
            assert isinstance(lines, Lines)
            assert lines.matcher.pattern == asked


async def test_keys_sent_at_once_go_through_screens_in_their_order(program: Path) -> None:
    async with browsing(program) as pilot:
        for key in ("2", "3", "tab", "tab", "j"):
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await settle(pilot)
        view = pilot.app.query_one(CodeView)
        assert view.pane("later").has_focus
        assert view.pane("later").cursor > 0


async def test_a_copy_for_an_editor_stays_when_the_browser_has_ended(
    program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("tui.line_actions.edit_path", lambda _app, path, _line: opened.append(path))
    async with browsing(program) as pilot:
        await press(pilot, "3", "tab", "e")
    (copy,) = opened
    assert "z = relu(y)" in copy.read_text()


@pytest.mark.parametrize("edited", [False, True])
async def test_a_file_that_is_not_what_was_recorded_is_opened_with_a_warning(
    edited: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tui.line_actions.edit_path", lambda _app, _path, _line: None)
    program = tmp_path / "prog.py"
    program.write_text("# new\n" * edited + build.SOURCE)
    events = [json.loads(json.dumps(event).replace(build.FILE, str(program))) for event in build.program()]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "3", "e")
        assert ("this file is not what was recorded" in screen(pilot)) == edited


async def _type(pilot: Pilot[int], text: str) -> int:
    """Send a text as a terminal without bracketed paste does, and return how many keys were handled one by one."""
    assert isinstance(pilot.app, Browser)
    before = pilot.app._typed._number
    for letter in text:
        pilot.app.post_message(events.Key(letter, letter))
    await settle(pilot)
    return pilot.app._typed._number - before


async def test_a_prompt_takes_a_typed_text_at_once(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "7")
        assert await _type(pilot, "f" + "sin" * 3_000) < MOST_AHEAD
        assert pilot.app.query_one(Input).value == "sin" * 3_000
        await press(pilot, "escape")
        assert "sin" in screen(pilot)


async def test_a_text_that_no_prompt_wants_is_dropped(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "7")
        assert await _type(pilot, "j" * 10_000) < MOST_AHEAD
        assert "keys were dropped" in screen(pilot)
        await press(pilot, "4")
        assert pilot.app.location.view == "breaks"  # type: ignore[attr-defined]  # Pilot knows no subclass


async def test_the_detail_takes_the_screen_and_e_opens_its_code(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, int]] = []
    monkeypatch.setattr("tui.line_actions.edit_path", lambda _, path, line: opened.append((path.suffix, line)))
    async with browsing(program) as pilot:
        await press(pilot, "7", "z")
        table = pilot.app.query_one("#kernels-list")
        assert not table.display
        await press(pilot, "e", "z")
        assert table.display
        await press(pilot, "6", "e")  # a guard leads to its source, of which a copy opens: the file is not here
        assert [suffix for suffix, _ in opened] == [".py", ".py"]
        assert opened[1][1] > 1
