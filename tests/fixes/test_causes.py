"""What counts as gone, what counts as compiled less, and what is still advised."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.explanation.advice_on_recompiles import REMEDIES as RECOMPILES
from dynadiag.explanation.break_remedies import REMEDIES
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.number_remedies import NUMBERS
from dynadiag.fixes import problems
from dynadiag.fixes.candidate import Candidate, Refusal
from dynadiag.fixes.fix_result import Fix, FixResult, _entry, document_of
from dynadiag.fixes.fix_search import Cause, _Search, refused_in
from dynadiag.fixes.problems import FixProblem, RunSummary, _each_once, _tensor_operators
from dynadiag.fixes.project import Project
from dynadiag.fixes.rewrites import CATALOGUE
from dynadiag.recording.records import Span
from dynadiag.trial.program import Program
from tests.fixes.build import HEAD, problem_at

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_self_temperature: "f64[][]cpu"):
        l_x_ = L_x_
        l_self_temperature = L_self_temperature
        item: "Sym(zf77)" = l_self_temperature.item();  l_self_temperature = None
        truediv: "f32[4][1]cpu" = l_x_ / item;  l_x_ = item = None
        softmax: "f32[4][1]cpu" = torch.softmax(truediv, dim = -1);  truediv = None
        return (softmax,)
"""


def test_operators_on_symbols_are_not_counted() -> None:
    assert _tensor_operators(GRAPH) == 2


def test_a_size_is_met_where_it_can_become_a_symbol() -> None:
    met = [("0/1", "1"), ("0/2", "12"), ("0/3", "13")]
    found = [FixProblem("recompile", "r", None, Span("l.py", 3), "f", each, "", now=now) for each, now in met]
    assert _each_once(found) == (found[1],)
    assert _each_once(found[:1]) == (found[0],)
    assert _each_once(found[1:]) == (found[1],)


SIZED = """import torch


@torch.compile(backend="eager")
def f(x):
    y = x.sin()
    return y, f"{x.shape[0]} rows"


def run():
    for rows in (3, 4):
        f(torch.ones(rows))
"""


def the_problems(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> tuple[FixProblem, ...]:
    """The causes in a run of a program, whose module is imported and ``run()``."""
    file = folder / f"{name}.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(folder)
    torch._dynamo.reset()
    with dynadiag.record(folder / "run.dynadiag"):
        importlib.import_module(name).run()
    monkeypatch.delitem(sys.modules, name)
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return problems.problems_of(explain(recording), Project.of(Program(str(file))))


def test_a_size_is_met_where_its_number_is_needed_not_where_its_tensor_is_used_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem,) = the_problems(tmp_path, monkeypatch, "sized_main", SIZED)
    assert (problem.source, problem.guarded) == ("L['x'].size()[0]", Span("sized_main.py", 7))


WRAPPED = """import torch


class Optimizer:
    @torch.no_grad()
    def step(self, parameter, names):
        return parameter * len(names)


def run():
    step = torch.compile(Optimizer().step, backend="eager")
    for names in (["a"], ["a", "b"]):
        step(torch.ones(3), names)
"""
OF_TORCH = """import torch


def run():
    double = torch.compile(torch.nn.Sequential(torch.nn.ReLU()), backend="eager")
    double(torch.ones(3))
    double(torch.ones(3, 3))
"""


def test_a_recompile_of_a_function_that_torch_wraps_is_at_that_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem,) = the_problems(tmp_path, monkeypatch, "wrapped_main", WRAPPED)
    assert (problem.file, problem.span.line) == ("wrapped_main.py", 6)


def test_a_recompile_of_a_module_of_torchs_is_at_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = the_problems(tmp_path, monkeypatch, "called_main", OF_TORCH)
    assert problem.file is None
    assert problem.span == Span("called_main.py", 7)  # not that of the copy which a trial runs


IN_PACKAGE = """import torch
from counting import times


def run():
    step = torch.compile(times, backend="eager")
    for names in (["a"], ["a", "b"]):
        step(torch.ones(3), names)
"""


def test_a_recompile_of_a_packages_function_is_at_that_function_and_not_torchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages/counting/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("def times(x, names):\n    return x * len(names)\n")
    monkeypatch.syspath_prepend(package.parents[1])
    (problem,) = the_problems(tmp_path, monkeypatch, "package_main", IN_PACKAGE)
    assert (problem.file, problem.span) == (None, Span("site-packages/counting/__init__.py", 1))
    entry = _entry(Fix(problem), Project.of(Program(str(tmp_path / "package_main.py"))))
    assert entry.title.startswith("no change of an installed package is known")
    assert entry.problem.file == str(package)


def test_a_number_stays_one_in_a_function_that_still_breaks() -> None:
    problem = FixProblem("recompile", "r", "f.py", Span("f.py", 3), "Net.forward", "0/1", "")
    number, size = Candidate("n", "argument", (), "", for_whole_graphs=True), Candidate("s", "argument", (), "")
    refused = refused_in({"Net.forward"}, problem, number)
    assert isinstance(refused, Refusal)
    assert "a graph break of Net.forward is left" in refused.why
    assert refused_in({"Net.forward"}, problem, size) is size
    assert refused_in({"Other.forward"}, problem, number) is number


def test_what_a_rewrite_carries_out_is_no_advice() -> None:
    advice = (
        Advice("call `torch._dynamo.mark_dynamic(x, 2)` before the first call", "tried", key="size.changed"),
        Advice("Pad to a few sizes", "tried", key="size.number"),
        Advice("Change the code", "unchecked", "torch"),
    )
    problem = problem_at(f"{HEAD}x = 1\n", "x = 1", advice=advice)
    assert Cause(problem, [], frozenset({"size.changed"})).advice == ("Pad to a few sizes", "Change the code")


def test_each_remedy_that_a_rewrite_names_is_one() -> None:
    known = {*REMEDIES, *(each.key for each in NUMBERS), *(each.key for each in RECOMPILES)}
    assert {key for rewrite in CATALOGUE for key in rewrite.remedies} <= known


def test_a_recompile_that_ends_with_a_break_that_is_left_is_not_told(tmp_path: Path) -> None:
    broken = FixProblem("break", "b", "f.py", Span("f.py", 2, 0), "f", "0/0", "")
    after = FixProblem("recompile", "r", "f.py", Span("f.py", 3), "f", "1/1", "", from_before_break=True)
    project = Project.of(Program(str(tmp_path / "f.py")))
    left = document_of(FixResult((Fix(broken), Fix(after)), (), {}, None), project, 1, 1.0)
    assert [entry.problem.kind for entry in left.fixes] == ["break"]
    alone = document_of(FixResult((Fix(after),), (), {}, None), project, 1, 1.0)
    assert [entry.problem.kind for entry in alone.fixes] == ["recompile"]


def test_advice_on_a_list_of_numbers_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number has a guard. Asked for each, a list of a thousand had no end."""

    def step(x: torch.Tensor) -> torch.Tensor:
        numbers = x.tolist()
        return torch.ones(1) * sum(numbers)

    torch._dynamo.reset()
    compiled = torch.compile(step, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled(torch.arange(8.0))
        compiled(torch.arange(8.0) + 0.5)
    asked: list[Any] = []
    monkeypatch.setattr(problems, "advise_on", lambda cases, _torch: asked.append(cases) or ())
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        explanation = explain(recording)
    found = problems.problems_of(explanation, Project(Program("f.py"), tmp_path, tmp_path))
    assert len([each for each in found if each.kind == "recompile"]) >= 8
    assert len(asked) == len(explanation.recompiles) == 1


def test_advice_on_a_recompile_is_that_of_the_report(tmp_path: Path) -> None:
    """The report sees all recompiles of the function: a number that a loop counts by remains a constant."""

    def sums(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        total = x[start]
        for number in range(start + 1, end):
            total = total + x[number]
        return total

    torch._dynamo.reset()
    compiled = torch.compile(sums, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        for start in range(0, 16, 4):
            compiled(torch.ones(20), start, start + 4)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        explanation = explain(recording)
    told = {advice for finding in explanation.findings for advice in finding.advice}
    found = problems.problems_of(explanation, Project(Program("f.py"), tmp_path, tmp_path))
    assert {advice for each in found for advice in each.advice} <= told


def test_recompiles_are_counted_as_they_were_made_and_not_by_the_guards_that_failed() -> None:
    said: list[str] = []
    problem = problem_at(f"{HEAD}x = 1\n", "x = 1")
    unchanged = SimpleNamespace(recorded=SimpleNamespace(summary=RunSummary(Counter(), {}, 4, 2, 7, 10)))
    search = _Search(SimpleNamespace(project=None), said.append, SimpleNamespace(unchanged=unchanged))  # type: ignore[arg-type]
    search._causes = [Cause(problem, [Candidate("n", "argument", (), "")]), *(Cause(problem, []) for _ in range(9))]
    search._message_causes()
    assert said == ["4 breaks and 2 recompiles of 10 causes: 1 change to try"]
