"""What runs in graphs is counted, each operator as often as its graph is called."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.output_graph import OutputGraph

from dynadiag.fixes.operator_counter import OperatorCounter


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> OperatorCounter:
    monkeypatch.setattr(OutputGraph, "call_user_compiler", OutputGraph.call_user_compiler)  # undone afterwards
    torch._dynamo.reset()
    return OperatorCounter()


def test_each_call_of_a_graph_counts_its_operators_on_tensors(counter: OperatorCounter) -> None:
    def step(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y.reshape(n + 1, -1) + 1

    compiled = torch.compile(step, backend="eager", dynamic=True)
    for _ in range(3):
        compiled(torch.ones(6), 2)
    assert counter.ran == 3 * 3
    step(torch.ones(6), 2)
    assert counter.ran == 3 * 3


def test_of_each_function_the_largest_graph_counts_once(counter: OperatorCounter) -> None:
    def step(x: torch.Tensor, twice: bool) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y.sin().cos() if twice else y.sin()

    compiled = torch.compile(step, backend="eager")
    for twice in (False, True, True):
        compiled(torch.ones(6), twice)
    assert (counter.ran, counter.calls) == (2 + 3 + 3, 6)
    assert sorted(counter.largest.values()) == [1, 2]


def test_both_sides_of_a_condition_are_in_the_graph(counter: OperatorCounter) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.sin() + 1, (x,))

    torch.compile(step, backend="eager")(torch.ones(3))
    assert counter.ran == 3 + 1 + 2 + 1  # the condition, both sides, and what it gives
