"""How a program ended leads its report, where that was not well and no failed compile is the reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dynadiag
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.program_end import bad_end, program_findings
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_end import RunEnd
from dynadiag.recording.records import Frame, Span
from dynadiag.render.report import explanation_text
from tests.explanation.build import FILE, FakeRecording, a_compile, a_graph, a_run, records

PROGRAM = """\
import sys

import torch


class Settings:
    pass


@torch.compile(backend="eager")
def double(x):
    return x * 2


def main():
    double(torch.ones(3))
    {end}


main()
"""
CRASHED = "the program was crashed by signal 11 (SIGSEGV): the recording holds what came before"


def ended(folder: Path, end: str) -> tuple[Explanation, str]:
    (folder / "program.py").write_text(PROGRAM.replace("{end}", end))
    command = [sys.executable, "-m", "dynadiag", "record", "-o", "run.dynadiag", "program.py"]
    subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=240)

    with dynadiag.open(folder / "run.dynadiag") as recording:
        made = explain(recording)
    return made, explanation_text(made)


def test_a_call_that_the_stance_refuses_is_told_by_what_changed() -> None:
    torch._dynamo.reset()
    double = torch.compile(lambda x: x * 2, backend="eager")
    double(torch.ones(4))
    with pytest.raises(RuntimeError) as raised, torch.compiler.set_stance("fail_on_recompile"):
        double(torch.ones(1))
    end = RunEnd("builtins.RuntimeError", str(raised.value), (Frame(FILE, 3, "main"),))
    (finding,) = program_findings(records(run=a_run(exit_code=1), end=end), ())
    assert finding.title.endswith("and the stance is `fail_on_recompile`: x.size()[0] changed")
    assert finding.cause == "x.size()[0] was 4, now 1"
    assert "torch always compiles sizes 0 and 1 apart" in finding.advice[0].text


def test_a_gradient_of_a_compiled_backward_is_to_be_taken_inside(tmp_path: Path) -> None:
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    def second(compiled: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        x = torch.tensor(2.0, requires_grad=True)
        (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
        return torch.autograd.grad(first, x)[0]

    with pytest.raises(RuntimeError) as raised:
        second(torch.compile(cube, backend="aot_eager"))
    end = RunEnd("builtins.RuntimeError", str(raised.value), (Frame(FILE, 3, "main"),))
    (finding,) = program_findings(records(run=a_run(exit_code=1), end=end), ())
    assert finding.rule.view.has_cause
    assert finding.cause is not None
    assert "has no backward of its own" in finding.cause
    (advice,) = finding.advice
    assert "torch.func.grad(torch.func.grad(fn))" in advice.text
    assert 'backend="eager"' in advice.text
    inside = torch.compile(torch.func.grad(torch.func.grad(cube)), backend="aot_eager")
    assert inside(torch.tensor(2.0)) == second(torch.compile(cube, backend="eager")) == 12.0


@pytest.mark.parametrize("again", ["create_graph=True", "retain_graph=True"])
def test_a_second_backward_is_told_by_whether_its_own_gradient_is_taken(again: str) -> None:
    """torch has one message for both."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.SiLU(), torch.nn.Linear(4, 1))
    x = torch.ones(2, 3, requires_grad=True)
    energy = torch.compile(lambda v: net(v).sum(), backend="aot_eager", dynamic=True)(x)
    with pytest.raises(RuntimeError) as raised:
        torch.autograd.grad(energy, x, create_graph=True)
    end = RunEnd("builtins.RuntimeError", str(raised.value), (Frame(FILE, 1, "main"),))
    run = records(run=a_run(exit_code=1), end=end, sources={FILE: f"torch.autograd.grad(energy, x, {again})"})
    (finding,) = program_findings(run, ())
    assert "donated buffers" in finding.title
    assert ["double_backward" in each.key for each in finding.advice] == [True] * (again == "create_graph=True")


@pytest.mark.usefixtures("forked_interpreters")
def test_the_programs_own_exception_leads(tmp_path: Path) -> None:
    made, text = ended(tmp_path, "print(Settings().missing)")
    said = "AttributeError at program.py:17: 'Settings' object has no attribute 'missing'"
    assert made.headline.sentence == f"The program raised {said}. No compile failed."
    first = made.findings[0]
    assert (first.rule, first.span.line, first.function) == ("failed-program", 17, "main")
    assert "17 |     print(Settings().missing)" in text
    assert "exit code" not in text


@pytest.mark.usefixtures("forked_interpreters")
def test_an_exit_code_of_its_own_leads(tmp_path: Path) -> None:
    made, text = ended(tmp_path, "sys.exit(3)")
    assert made.headline.sentence == "The program ended itself with exit code 3 (`sys.exit`). No compile failed."
    assert text.count("exit code") == 1
    assert made.findings == ()


def told(ended: str, compile_error: str | None = None) -> list[str]:
    """The titles of what is told of a program that ends with an exception, perhaps after a failed compile."""
    compiled = a_compile(outcome="error" if compile_error else "ok", error=compile_error)
    run = records(compiles=(compiled,), end=RunEnd(ended, "no\nway", (Frame(FILE, 9, "main"),)))
    failed = Finding(Rule.FAILED_COMPILE, None, "", "error", Span(FILE, 1), "forward", "compiling forward failed")
    return [item.title for item in program_findings(run, (failed,) if compile_error else ())]


def test_the_exception_of_a_failed_compile_is_not_told_twice() -> None:
    assert told("torch._inductor.exc.InductorError", "InductorError") == []
    assert told("torch._dynamo.exc.Unsupported", "Unsupported") == []
    assert told("builtins.AssertionError", "AssertionError") == []
    assert told("builtins.ValueError", "Unsupported") == ["the program raised ValueError: no way"]
    assert told("torch._dynamo.exc.FailOnRecompileLimitHit")


def test_an_interrupt_is_no_failure() -> None:
    assert told("builtins.KeyboardInterrupt") == []


@pytest.mark.parametrize(
    ("code", "notes", "sentence"),
    [
        (0, (), None),
        (None, (), None),
        (4, (), "The program ended with exit code 4."),  # `os._exit`: no recorder saw the end
        (-11, (CRASHED,), "The program was crashed by signal 11 (SIGSEGV)."),
        (-9, (), "The program was killed by signal 9 (SIGKILL)."),
    ],
)
def test_how_a_program_ends_without_an_exception(code: int | None, notes: tuple[str, ...], sentence: str) -> None:
    assert bad_end(records(run=a_run(exit_code=code, notes=notes)), ()) == sentence


def test_a_compile_that_the_end_came_in_is_named() -> None:
    begun = a_compile(outcome="error", error=None, reason="the recording ends during this compile")
    run = a_run(exit_code=-11, notes=(CRASHED,), complete=True)
    made = explain(FakeRecording(run=run, compile_records=(begun,), graph_records=(a_graph(),)))
    assert made.headline.sentence == (
        "The program was crashed by signal 11 (SIGSEGV). forward was being compiled then."
    )
    assert explanation_text(made).count("SIGSEGV") == 1


def test_the_headline_has_the_first_line_of_a_long_message() -> None:
    end = RunEnd("builtins.AssertionError", "Tensor-likes are not close!\n\nMismatched elements: 3 / 6\n", ())
    run = records(run=a_run(exit_code=1), end=end)
    found = program_findings(run, ())
    assert found[0].title.endswith("Tensor-likes are not close! Mismatched elements: 3 / 6")
    assert bad_end(run, found) == "The program raised AssertionError: Tensor-likes are not close!"


RAISES_INSIDE = """\
import torch


@torch.library.custom_op("demo::checked", mutates_args=())
def checked(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("out of range")


@checked.register_fake
def _(x):
    return torch.empty_like(x)


@torch.compile(backend="eager")
def forward(x):
    y = x.sin()
    return checked(y) + 1


forward(torch.ones(3))
"""


@pytest.mark.usefixtures("forked_interpreters")
def test_a_call_inside_a_compiled_function_has_no_line(tmp_path: Path) -> None:
    """Its code bears the line of the whole function, which is not where the call is."""
    (tmp_path / "program.py").write_text(RAISES_INSIDE)
    command = [sys.executable, "-m", "dynadiag", "record", "-o", "run.dynadiag", "program.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=240)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (found,) = explain(recording).findings
    assert found.span.line == 6
    assert [(each.function, each.line) for each in found.called] == [("<module>", 20), ("forward", None)]
