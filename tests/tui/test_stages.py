"""Stages below a kernel, tied line by line to its source."""

from __future__ import annotations

from pathlib import Path

from dynadiag.kernels import Stage, Stages
from tests.tui import build
from tui.documents import split
from tui.linking import board_of, take_stages
from tui.session import Session
from tui.stages import Made, call_at
from tui.widgets.code import is_exact

MODULE_LINES = split(build.MODULE)


def _made(session: Session) -> tuple[Made, int]:
    """A stage of the C++ kernel, and the line (from 0) of the module that its one statement stands on."""
    line = next(number for number, text in enumerate(MODULE_LINES) if "auto tmp0" in text)
    call = call_at(session, "0/0", _module(session), line)
    assert call is not None
    assert call.name == "cpp_fused_relu_1"
    assert call.definition is not None
    source = line + 2 - call.definition.first
    stage = Stage("asm", "kernel:\n  mov %rax, %rbx\n  ret", ((2, source),))
    return Made(call, Stages("native", {"asm": stage})), line


def _module(session: Session) -> str:
    return f"event:{session.kernels('0/0')[0].event}"


def test_a_line_of_assembly_belongs_to_one_line_of_the_kernel_and_to_the_users(program: Path) -> None:
    with Session.open(program) as session:
        board = board_of(session, "0/0")
        made, line = _made(session)
        take_stages(board, made)
        ref = board.ref("stage")
        assert ref is not None
        stage, module = board.links[ref.key], board.links[_module(session)]
        (exact,) = [place for place in stage.of(1) if is_exact(place)]
        assert module.at({exact}) == (line,)
        assert {place for place in stage.of(1) if not is_exact(place)} == {(build.FILE, 7)}
        assert stage.of(2) == frozenset()


def test_no_kernel_stands_on_an_import(program: Path) -> None:
    with Session.open(program) as session:
        assert call_at(session, "0/0", _module(session), 1) is None
