"""Which NaN and infinities come to what a graph returns, and which are taken out again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from dynadiag.node_values.node_run import NodeRun

BAD = torch.tensor([-1.0, 4.0, math.nan])
LOW = torch.tensor([-1.0, 4.0, 9.0])


def run_of(function: Callable[..., Any], *inputs: Any) -> NodeRun:
    module = fx.symbolic_trace(function)
    run = NodeRun(module, named=lambda _: True, wanted=frozenset(), whole=lambda *_: None)
    run.run(*inputs)
    run.add_flow()
    return run


def flow_of(function: Callable[..., Any], *inputs: Any) -> dict[str, bool]:
    """Of each node that is not finite, whether that is returned."""
    return {node["node"]: node["reaches"] for node in run_of(function, *inputs).nodes if "cause" in node or node["nan"]}


@pytest.mark.parametrize(
    ("function", "flow"),
    [
        (lambda x: torch.where(x > 0, x.log(), 0.0), {"log": False}),
        (lambda x: x.sqrt().nan_to_num(0.0), {"sqrt": False}),
        (lambda x: (x.log().nan_to_num(0.0), x.sqrt()), {"log": False, "sqrt": True}),
        (lambda x: x.log().nansum() + 1, {"log": False}),
        (lambda x: 1 / (1 + (x * 1e3).exp()), {"exp": False}),
        (lambda x: torch.where(x > 3, x.log(), x.sqrt() * 2), {"log": False, "sqrt": True, "mul": True, "where": True}),
        (lambda x: x.log() + x.sqrt(), {"log": True, "sqrt": True, "add": True}),
        (lambda x: (x.log().split(1)[1], x.log().split(2)[0]), {}),
    ],
)
def test_a_nan_that_is_taken_out_comes_to_nothing(function: Callable[..., Any], flow: dict[str, bool]) -> None:
    found = flow_of(function, LOW)
    assert {name: found[name] for name in flow} == flow


def test_a_nan_passes_through_a_value_of_several_tensors() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.var_mean(x.log(), 0)[0]

    run = run_of(function, LOW)
    found = {node["node"]: node for node in run.nodes}
    assert found["log"]["reaches"] is True
    assert found["getitem"]["inputs"] == ["log"]


def test_what_makes_a_nan_of_several_tensors_is_told_at_its_parts() -> None:
    nodes = run_of(lambda x: torch.var_mean(x, 0)[0], torch.tensor([math.inf, 1.0])).nodes
    assert [node["cause"] for node in nodes if node["node"] == "getitem"] == ["var_mean of 1..1, with infinities"]


def test_infinities_that_make_a_nan_together_come_to_it() -> None:
    found = flow_of(lambda x: x.exp() / x.exp().sum(), torch.tensor([1000.0, 1.0]))
    assert found == dict.fromkeys(("exp", "exp_1", "truediv"), True)


def test_a_node_that_makes_a_nan_beside_those_that_it_reads_has_a_cause() -> None:
    nodes = {node["node"]: node for node in run_of(lambda x: x.sqrt(), BAD).nodes}
    assert nodes["sqrt"]["cause"] == "sqrt of -1 at [0]"
    assert nodes["x"]["reaches"] is True


def test_missing_data_that_are_replaced_are_a_note() -> None:
    run = run_of(lambda x: torch.where(x.isnan(), 0.0, x), BAD)
    assert list(run.notes) == ["the NaN of the input x come to nothing that the graph returns"]


def test_what_is_written_to_an_input_comes_out() -> None:
    def function(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        kept.mul_(x.log())
        return x * 2

    assert flow_of(function, LOW, torch.ones(3))["log"] is True


def test_a_run_that_fails_knows_nothing() -> None:
    module = fx.symbolic_trace(lambda x: (x.log() @ x.expand(2, 7)).sum())
    run = NodeRun(module, named=lambda _: True, wanted=frozenset(), whole=lambda *_: None)
    with pytest.raises(RuntimeError):
        run.run(LOW)
    run.add_flow()
    assert [node for node in run.nodes if "reaches" in node] == []
