"""Where `nested_graph_breaks` is proposed, and that it does what the proposal says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dynadiag
from dynadiag.explanation.break_remedies import NESTED
from dynadiag.explanation.explanation import Explanation, explain
from tests.samples.running import TORCH

pytestmark = pytest.mark.skipif(TORCH in ("2.11", "2.12"), reason="torch has the option from 2.13 on")


def helper(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def outer(x: torch.Tensor) -> torch.Tensor:
    return helper(x + 1) * 2


def flat(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def explained(file: Path, function: object, *, nested: bool) -> Explanation:
    torch._dynamo.reset()
    with dynadiag.record(file), torch._dynamo.config.patch(nested_graph_breaks=nested):
        torch.compile(function, backend="eager")(torch.ones(3))
    with dynadiag.open(file) as recording:
        return explain(recording)


def given(found: Explanation) -> list[str]:
    return [each.text for item in found.findings for each in item.advice if each.key == NESTED.key]


def test_a_break_in_an_inlined_function_ends_half_the_graphs(tmp_path: Path) -> None:
    before = explained(tmp_path / "before.dynadiag", outer, nested=False)
    after = explained(tmp_path / "after.dynadiag", outer, nested=True)
    (text,) = given(before)
    assert "inside `helper`" in text
    assert "no graph of `outer`" in text
    assert (before.graph_count, after.graph_count) == (4, 2)
    assert given(after) == []


def test_a_break_in_the_compiled_function_itself_has_no_use_of_it(tmp_path: Path) -> None:
    assert given(explained(tmp_path / "run.dynadiag", flat, nested=False)) == []


def test_it_is_proposed_where_the_program_is_run_by_another(tmp_path: Path) -> None:
    file = tmp_path / "run.dynadiag"
    torch._dynamo.reset()
    with dynadiag.record(file):
        exec(
            compile("call(x)", "program.py", "exec"),
            {"call": torch.compile(outer, backend="eager"), "x": torch.ones(3)},
        )
    with dynadiag.open(file) as recording:
        (found,) = explain(recording).findings
    assert NESTED.key in {each.key for each in found.advice}
