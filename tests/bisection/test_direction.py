"""Faults in the forward or the backward of a graph, at a rung that compiles both as one."""

from __future__ import annotations

import pytest
import torch

from dynadiag.bisection.split_autograd import split_autograd
from tests.bisection.conftest import Bisected

# An operator whose formula depends on how it is traced: right in eager and under Dynamo, wrong in AOTAutograd's graph.
PROGRAM = """
import torch

library = torch.library.Library("mine", "DEF")
library.define("wave(Tensor x) -> Tensor")

def wave(x):
    out = x.sin()
    return out if type(x) is torch.Tensor else {traced}

library.impl("wave", wave, "CompositeImplicitAutograd")

def f(x):
    return torch.ops.mine.wave(x * 2) + 1

def run(function):
    x = torch.linspace(0.1, 1, 8).requires_grad_()
    y = function(x)
    y.sum().backward()
    return y.detach(), x.grad

torch.testing.assert_close(run(torch.compile(f, backend="aot_eager")), run(f))
"""
FORWARD, BACKWARD = "out + x.detach()", "out + (x - x.detach())"
BOTH = "x.cos()"


@pytest.mark.parametrize(
    ("traced", "direction"),
    [(FORWARD, "forward"), (BACKWARD, "backward"), pytest.param(BOTH, None, marks=pytest.mark.slow)],
)
def test_the_direction_of_a_graph_is_named(bisected: Bisected, traced: str, direction: str | None) -> None:
    verdict = bisected(PROGRAM.format(traced=traced))
    assert (verdict.verdict, verdict.rung) == ("found", "aot_eager"), verdict.notes
    (culprit,) = verdict.culprits
    assert (culprit.group, culprit.name, culprit.nodes) == ("operator", "mine.wave.default", ("wave",))
    assert culprit.graph == direction
    assert not any("fork" in note for note in verdict.notes), "autograd runs in forks too"
    assert len(verdict.confirmed) == (5 if direction else 4), "the graph, its direction, and the node"
    assert sum("direction" in plan for plan in verdict.reproduce) == (2 if direction else 0)


def test_results_of_one_and_derivatives_of_the_other() -> None:
    call = split_autograd(lambda x, n, w: (x * w + n, n, None), lambda x, n, w: (x * w * 10, n, None))
    x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
    out, number, nothing = call(x, 5, w)
    assert (out.tolist(), number, nothing) == ([7.0] * 3, 5, None)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0] * 3


def test_both_draw_the_same_random_numbers_and_write_to_inputs_once() -> None:
    def drops(x: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor]:
        count.add_(1)
        return (torch.nn.functional.dropout(x, 0.5),)

    x, count = torch.ones(64, requires_grad=True), torch.zeros(())
    (out,) = split_autograd(drops, drops)(x, count)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())
    assert count == 1


def test_where_nothing_is_differentiated_only_the_results_are_asked_for() -> None:
    def unasked(x: torch.Tensor) -> tuple[torch.Tensor]:
        raise AssertionError

    with torch.no_grad():
        assert split_autograd(lambda x: (x + 1,), unasked)(torch.ones((), requires_grad=True))[0] == 2
