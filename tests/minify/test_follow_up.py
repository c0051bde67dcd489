"""What is asked of a proved repro, with real trials."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from dynadiag.bisection.budget import SearchBudget
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify import follow_up
from dynadiag.minify.follow_up import with_follow_up
from dynadiag.minify.minify_result import ComparedDocument, MinifyResult, NeighbourDocument, ValueRow
from dynadiag.minify.minimizer import HOOKS
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.signature import Signature
from tests.interpreters import warm

REPRO = """
import torch

def f(x):
    out = x.sum(0, keepdim=True)
    return out + (torch.compiler.is_compiling() and out.dim() == 2)

x = torch.ones(3, 2, requires_grad=True)
torch.testing.assert_close(torch.compile(f, backend="eager", fullgraph=True)(x), f(x))
"""
WRONG = Signature("wrong_result", "wrong_result", "GraphModule: output 0 differs in 2 of 2 elements")
RESULT = MinifyResult("reduced", rung="eager", failure=WRONG, text=REPRO, proved=True)


@contextmanager
def a_search(folder: Path) -> Iterator[TrialSearch]:
    file = folder / "repro.py"
    file.write_text(REPRO)
    rows = TrialLog(folder / "search.dynadiag", "train.py", ["train.py"], asked={"command": "minify"})
    with warm(), Runner(Program(str(file)), HOOKS) as runner:
        runner.start_forks(threads=1, checkpoint=False)
        yield TrialSearch(runner, rows, lambda *_: None)
    rows.discard()


def test_the_values_and_the_options_that_matter_are_told(tmp_path: Path) -> None:
    with a_search(tmp_path) as search:
        result = with_follow_up(search, tmp_path, RESULT)
        none = with_follow_up(replace(search, budget=SearchBudget(0.0)), tmp_path, RESULT)
        passing = replace(RESULT, text=REPRO.replace("out.dim() == 2", "out.dim() == 3"))
        assert with_follow_up(search, tmp_path, passing) == passing  # of a failure that forks do not show
        hang = replace(RESULT, failure=Signature("hang", "timeout", "did not end in time"))
        assert with_follow_up(search, tmp_path, hang) is hang
    rows = tuple(ValueRow(f"[0, {column}]", "3", "4") for column in range(2))
    compiled = "torch.compile(f, backend='eager', fullgraph=True)(x)"
    assert result.compared == ComparedDocument(compiled, rows, 2, 2)
    assert result.neighbours == (
        NeighbourDocument("argument", "keepdim=True", "keepdim=False", "pass"),
        NeighbourDocument("argument", "fullgraph=True", "fullgraph=False", "same"),
        NeighbourDocument("gradient", "requires_grad=True", "", "same"),
    )
    assert (none.compared, none.neighbours) == (None, ())
    assert any("not all neighbours" in note for note in none.notes)


@pytest.mark.parametrize("swapped", [False, True])
def test_the_side_that_differs_from_the_uncompiled_run_is_the_compiled_one(tmp_path: Path, swapped: bool) -> None:
    sides = ["torch.compile(f, backend='eager')(x).item()", "f(x).item()"][:: -1 if swapped else 1]
    function = "import torch\ndef f(x):\n    return x + torch.compiler.is_compiling()\nx = torch.ones(1)\n"
    text = f"{function}assert {' == '.join(sides)}\n"
    with a_search(tmp_path) as search:
        result = with_follow_up(search, tmp_path, replace(RESULT, text=text))
        drawn = text.replace("torch.ones(1)", "torch.rand(1)")
        random = with_follow_up(search, tmp_path, replace(RESULT, text=drawn))
    assert result.compared is not None
    assert result.compared.what.startswith("torch.compile(")
    assert result.compared.rows == (ValueRow("", "1", "2"),)
    assert random.compared is None  # both sides are others in each run


@pytest.mark.parametrize(
    ("ended", "tried"),
    [
        (Outcome(Signature("hang", "timeout", "did not end in time")), ()),
        (Outcome(invalid="out of memory"), ()),
        (Outcome(Signature("exception", "ValueError", "no", cause="ValueError")), ("different",)),
    ],
)
def test_a_neighbour_that_ran_short_of_time_or_memory_says_nothing(
    ended: Outcome, tried: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Signature("exception", "AssertionError", "", cause="AssertionError")
    texts = {REPRO.replace("keepdim=True", "keepdim=False"): ended, REPRO: Outcome(failed)}

    def runs(_: object, text: str, label: str) -> Callable[[Plan], Outcome]:
        found = next((texts[each] for each in texts if ast.dump(ast.parse(each)) == ast.dump(ast.parse(text))), None)

        def run(plan: Plan) -> Outcome:
            assert not plan.caches  # a key of the caches may not have what the neighbour leaves out
            return Outcome(failed) if found is None else Outcome() if plan.rung == "uncompiled" else found

        return run

    monkeypatch.setattr(follow_up._FollowUp, "_runs", runs)
    search = TrialSearch(MagicMock(has_forks=True), MagicMock())
    result = with_follow_up(search, tmp_path, RESULT)
    assert tuple(each.status for each in result.neighbours) == tried
