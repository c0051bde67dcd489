"""Only what is compiled after the warm-up is reported, and `check` holds it to none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import dynadiag
from dynadiag.check.measurement import measure
from dynadiag.explanation.explanation import explain


def body(x: torch.Tensor, k: int) -> torch.Tensor:
    return x * k + x.shape[0]


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
        late, whole = explain(recording, after_warm_up=True), explain(recording)
    assert (late.headline.sentence, late.headline.severity) == ("Nothing was compiled after the warm-up.", "good")
    assert late.findings == ()
    assert len(whole.compiles) == 2
    assert whole.warm_up is not None
    assert (whole.warm_up.before, whole.warm_up.late) == (2, ())


def test_what_is_compiled_after_it_leads(tmp_path: Path) -> None:
    with dynadiag.open(recorded(tmp_path / "run.dynadiag", (torch.ones(6), 3))) as recording:
        late = explain(recording, after_warm_up=True)
    assert late.headline.sentence == "1 compile came after the warm-up: body."
    assert late.headline.severity == "warning"
    assert [each.compile_id for each in late.recompiles] == ["0/2"]
    assert [item.title for item in late.findings] == ["body: k changed"]


def test_a_compile_after_a_reset_is_told_apart(tmp_path: Path) -> None:
    torch._dynamo.reset()
    file = tmp_path / "run.dynadiag"
    with dynadiag.record(file):
        torch.compile(body, backend="eager")(torch.ones(4), 2)
        dynadiag.warm()
        torch._dynamo.reset()
        torch.compile(body, backend="eager")(torch.ones(4), 2)
    with dynadiag.open(file) as recording:
        late = explain(recording, after_warm_up=True)
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
