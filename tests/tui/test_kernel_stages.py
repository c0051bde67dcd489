"""Stages below a kernel, tied line by line to its source."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dynadiag.errors import DynadiagError
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import split_lines
from dynadiag.kernels.line_table import Stage
from dynadiag.kernels.stages import CompiledStages
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.code_panes import read_panes, set_stages
from tui.kernel_stages import CompiledKernel, kernel_call_at
from tui.session import Session
from tui.widgets.code_pane import CodePane, is_kernel_line

MODULE_LINES = split_lines(build.MODULE)


def _made(session: Session) -> tuple[CompiledKernel, int]:
    """A stage of the C++ kernel, and the line (from 0) of the module that its one statement stands on."""
    line = next(number for number, text in enumerate(MODULE_LINES) if "auto tmp0" in text)
    call = kernel_call_at(session, "0/0", _module(session), line)
    assert call is not None
    assert call.name == "cpp_fused_relu_1"
    assert call.definition is not None
    source = line + 2 - call.definition.first_line
    stage = Stage("asm", "kernel:\n  mov %rax, %rbx\n  ret", ((2, source),))
    return CompiledKernel(call, CompiledStages("native", {"asm": stage})), line


def test_an_instruction_stands_beside_its_address(program: Path) -> None:
    with Session.open(program) as session:
        made, _ = _made(session)
        text = f"        /*00a0*/{' ' * 19}LDC R1, c[0x0][0x28] ;"
        sass = CompiledKernel(made.call, CompiledStages("sm_90", {"sass": Stage("sass", text, ())}))
        board = read_panes(session, "0/0")
        set_stages(board, sass)
        ref = board.ref("stage")
        assert ref is not None
        assert board.documents[ref.key].lines == ["/*00a0*/ LDC R1, c[0x0][0x28] ;"]


def _module(session: Session) -> str:
    return f"event:{session.recording.kernels('0/0')[0].event}"


def test_a_line_of_assembly_belongs_to_one_line_of_the_kernel_and_to_the_users(program: Path) -> None:
    with Session.open(program) as session:
        board = read_panes(session, "0/0")
        made, line = _made(session)
        set_stages(board, made)
        ref = board.ref("stage")
        assert ref is not None
        stage, module = board.links[ref.key], board.links[_module(session)]
        (exact,) = [place for place in stage.keys_of(1) if is_kernel_line(place)]
        assert module.lines_of({exact}) == (line,)
        assert {place for place in stage.keys_of(1) if not is_kernel_line(place)} == {(build.FILE, 7)}
        assert stage.keys_of(2) == frozenset()


async def test_a_kernel_that_is_compiled_and_one_that_cannot_be_is_said_where_its_stages_would_stand(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, said = threading.Event(), "no compiler: there is no g++ here"

    def failing(*_: object) -> CompiledKernel:
        going.wait(60)
        raise DynadiagError(said)

    monkeypatch.setattr("tui.views.pane_actions.is_in_own_cache", lambda *_: True)
    monkeypatch.setattr("tui.views.pane_actions.compile_kernel", failing)
    async with browsing(program, (200, 40)) as pilot:
        await press(pilot, "3", "tab", "tab", "tab", "slash", *"auto tmp0", "enter")
        await pilot.press("a")
        while "compiling" not in screen(pilot):
            await pilot.pause(0.01)
        going.set()
        await settle(pilot)
        assert "compiling" not in screen(pilot)
        pane = pilot.app.query_one("#pane-stage", CodePane)
        assert pane.display
        assert said in pane._note


async def test_from_a_source_line_its_machine_code_is_one_key_away(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.views.pane_actions.is_in_own_cache", lambda *_: True)
    monkeypatch.setattr("tui.views.pane_actions.compile_kernel", lambda session, _call: _made(session)[0])
    async with browsing(program, (200, 40)) as pilot:
        await press(pilot, "3", "j", "a")
        assert "mov %rax, %rbx" in screen(pilot)
        kernel = pilot.app.query_one("#pane-kernel", CodePane)
        assert kernel.has_focus
        assert "void  kernel(" in kernel.text_of(kernel.cursor)
        await press(pilot, "shift+tab", "shift+tab", "shift+tab", "g", "a")
        assert any("no kernel of the generated code" in note.message for note in pilot.app._notifications)


async def test_a_recording_that_is_read_again_has_no_stages_and_the_cursor_is_elsewhere(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.views.pane_actions.is_in_own_cache", lambda *_: True)
    monkeypatch.setattr("tui.views.pane_actions.compile_kernel", lambda session, _call: _made(session)[0])
    async with browsing(program, (200, 40)) as pilot:
        await press(pilot, "3", "j", "a", "tab")
        assert pilot.app.query_one("#pane-stage", CodePane).has_focus
        await press(pilot, "r")
        assert pilot.app.query_one("#pane-source", CodePane).document is not None
        assert not pilot.app.query_one("#pane-stage", CodePane).has_focus


async def _compiled_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, meanwhile: list[str], *more: Path
) -> str:
    """The screen after a kernel was compiled, where keys are pressed before the compiler is done."""
    going = threading.Event()

    def compiled(session: Session, call: KernelCall) -> CompiledKernel:
        going.wait(60)
        return replace(_made(session)[0], call=call)

    monkeypatch.setattr("tui.views.pane_actions.is_in_own_cache", lambda *_: True)
    monkeypatch.setattr("tui.views.pane_actions.compile_kernel", compiled)
    async with browsing(path, (200, 40)) as pilot:
        assert isinstance(pilot.app, Browser)
        pilot.app.paths = [path, *more]
        await press(pilot, "3", "tab", "tab", "tab", *keys.split())
        await pilot.press("a")
        while "compiling" not in screen(pilot):
            await pilot.pause(0.01)
        for key in meanwhile:
            await pilot.press(key)
            for _ in range(20):
                await pilot.pause(0.01)
        going.set()
        await settle(pilot)
        return screen(pilot)


async def test_a_kernel_of_a_module_that_was_left_and_is_read_no_more_is_shown_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recording was read again meanwhile, at another module."""
    second = ({"inductor_output_code": {"filename": "/tmp/l.py"}, **build.at("0/0")}, build.MODULE)
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0"), second, *build.end_events()]
    path = build.recording(tmp_path, events)
    text = await _compiled_meanwhile(path, monkeypatch, "right_square_bracket slash a u t o enter", ["[", "r"])
    assert "mov %rax, %rbx" in text


async def test_a_kernel_of_another_recording_is_not_shown(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compile has the same id, its module has not."""
    events = [*build.run_events(), *build.compile_events("0/0")[-5:], *build.end_events()]
    other = build.recording(tmp_path, events, "other")
    text = await _compiled_meanwhile(program, monkeypatch, "slash a u t o enter", ["greater_than_sign"], other)
    assert "other.dynadiag" in text
    assert "mov %rax, %rbx" not in text


def test_no_kernel_stands_on_an_import(program: Path) -> None:
    with Session.open(program) as session:
        assert kernel_call_at(session, "0/0", _module(session), 1) is None
