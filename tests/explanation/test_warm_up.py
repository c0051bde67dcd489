"""Only what is compiled after the warm-up is reported, and `check` holds it to none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.__main__ import main
from dynadiag.check.measurement import measure
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.warm_up import WarmUp, no_warm_up

pytestmark = pytest.mark.usefixtures("forked_interpreters")


def body(x: torch.Tensor, k: int) -> torch.Tensor:
    return x * k + x.shape[0]


LINE = body.__code__.co_firstlineno


def recorded(file: Path, *late: Any) -> Path:
    """A program that compiles a function twice, says that it is warm, and then calls it with these arguments."""
    torch._dynamo.reset()
    compiled = torch.compile(body, backend="eager")
    with dynadiag.record(file):
        compiled(torch.ones(4), 2)
        compiled(torch.ones(5), 2)
        dynadiag.warm()
        for arguments in late:
            compiled(*arguments)
    return file


def test_nothing_is_compiled_after_the_warm_up(tmp_path: Path) -> None:
    with dynadiag.open(recorded(tmp_path / "run.dynadiag", (torch.ones(6), 2))) as recording:
        late, whole = explain(recording, after=None), explain(recording)
    assert (late.headline.sentence, late.headline.severity) == ("Nothing was compiled after the warm-up.", "good")
    assert late.findings == ()
    assert len(whole.compiles) == 2
    assert whole.warm_up is not None
    assert (whole.warm_up.before, whole.warm_up.late) == (2, ())


def test_what_is_compiled_after_it_leads(tmp_path: Path) -> None:
    with dynadiag.open(recorded(tmp_path / "run.dynadiag", (torch.ones(6), 3))) as recording:
        late = explain(recording, after=None)
    assert late.headline.sentence == f"1 compile came after the warm-up: body (test_warm_up.py:{LINE})."
    assert late.headline.severity == "warning"
    assert [each.compile_id for each in late.recompiles] == ["0/2"]
    assert [item.title for item in late.findings] == ["body: k changed"]


def test_a_warm_up_of_other_calls_is_not_that_which_was_asked_for(tmp_path: Path) -> None:
    with dynadiag.open(recorded(tmp_path / "run.dynadiag", (torch.ones(6), 2))) as recording:
        asked = explain(recording, after=5)
    assert len(asked.compiles) == 2  # all of them
    assert "warm-up" not in asked.headline.sentence
    said = no_warm_up(5, WarmUp(7, 2, ()))
    assert (said or "").startswith("no warm-up of 5 calls is recorded, but one of 7 calls: ")


def test_a_backward_that_alone_is_compiled_late_is_told_as_one(tmp_path: Path) -> None:
    torch._dynamo.reset()
    file, x = tmp_path / "run.dynadiag", torch.ones(4, requires_grad=True)
    with dynadiag.record(file):
        loss = torch.compile(body, backend="aot_eager")(x, 2).sum()
        dynadiag.warm()
        loss.backward()
    with dynadiag.open(file) as recording:
        late = explain(recording, after=None)
    assert f"the backward of body (test_warm_up.py:{LINE})" in late.headline.sentence
    assert [named for named, _ in measure(late, (), "run").late] == ["the backward of body"]


def test_a_late_module_of_torchs_has_the_line_that_called_it(tmp_path: Path) -> None:
    torch._dynamo.reset()
    file, compiled = tmp_path / "run.dynadiag", torch.compile(torch.nn.Linear(2, 2), backend="aot_eager")
    with dynadiag.record(file):
        first = compiled(torch.ones(3, 2)).sum()
        dynadiag.warm()
        first.backward()
    with dynadiag.open(file) as recording:
        late = explain(recording, after=None)
    line = test_a_late_module_of_torchs_has_the_line_that_called_it.__code__.co_firstlineno + 4
    assert f"the backward of Linear.forward (test_warm_up.py:{line})" in late.headline.sentence


def test_a_child_that_compiles_is_told_of_as_late(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program, file = tmp_path / "program.py", str(tmp_path / "run.dynadiag")
    program.write_text(
        "import os, torch, dynadiag\n"
        "step = torch.compile(lambda x: x + 1, backend='eager')\n"
        "step(torch.ones(4))\n"
        "dynadiag.warm()\n"
        "if not (child := os.fork()):\n"
        "    step(torch.ones(5))\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    assert main(["explain", "-o", file, str(program)]) == 0
    assert "1 compile came after the warm-up: <lambda> (program.py:2)" in " ".join(capfd.readouterr().out.split())


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [(2, "1 compile came after the warm-up of 2 calls: <lambda> (program.py:3)."), (3, None)],
)
def test_after_as_many_calls_as_there_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], calls: int, sentence: str | None
) -> None:
    """The backward of the last call is part of it; what another function compiles afterwards is not."""
    program, file = tmp_path / "program.py", str(tmp_path / "run.dynadiag")
    program.write_text(
        "import torch\n"
        "step = torch.compile(lambda x: x.sin(), backend='aot_eager')\n"
        "other = torch.compile(lambda x: x + 1, backend='eager')\n"
        "step(torch.ones(4))\n"
        "step(torch.ones(4, requires_grad=True)).sum().backward()\n"
        "other(torch.ones(5))\n"
    )
    assert main(["explain", "--after", str(calls), "-o", file, str(program)]) == 0
    shown = capfd.readouterr()
    assert shown.out.startswith(sentence or "All") or not sentence
    assert ("no warm-up of" in shown.err) == (sentence is None)


def test_a_compile_after_a_reset_is_told_apart(tmp_path: Path) -> None:
    torch._dynamo.reset()
    file = tmp_path / "run.dynadiag"
    with dynadiag.record(file):
        torch.compile(body, backend="eager")(torch.ones(4), 2)
        dynadiag.warm()
        torch._dynamo.reset()
        torch.compile(body, backend="eager")(torch.ones(4), 2)
    with dynadiag.open(file) as recording:
        late = explain(recording, after=None)
    assert [each.compile_id for each in late.compiles] == [late.warm_up and late.warm_up.late[0]]


def test_check_has_a_problem_for_each_late_compile(tmp_path: Path) -> None:
    from dynadiag.check.configuration import parse_budgets
    from dynadiag.check.result import check

    with dynadiag.open(recorded(tmp_path / "run.dynadiag", (torch.ones(6), 3))) as recording:
        run = measure(explain(recording), (), "run")
    found = check([run], None, lambda _run: parse_budgets({"max-recompiles": 9}, "test"), tmp_path)
    assert [each.rule for each in found.problems] == ["compiled-after-warm-up"]
    assert "body was compiled after the warm-up (compile 0/2)" in found.problems[0].text


def test_where_nothing_is_recorded_warm_does_nothing() -> None:
    dynadiag.warm()
