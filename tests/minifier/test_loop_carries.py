"""Loops with fewer carried values: those that are only returned beside the value at fault are removed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from minifier import reduce_graph
from minifier.emit import write_program
from tests.minifier.test_vmap_folding import recorded, shape_of


def repeated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    def condition(i: torch.Tensor, y: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        return (i < 4) & (y.abs().sum() < 1e6)

    def body(i: torch.Tensor, y: torch.Tensor, best: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.tanh(y @ w) + x
        return i + 1, y, torch.maximum(best, y.amax(-1))

    h = x.sin()
    _, y, best = while_loop(condition, body, (torch.tensor(0), h, h.amax(-1)))
    return (y * best.unsqueeze(-1)).mean()


def by_rows(x: torch.Tensor) -> torch.Tensor:
    def step(carry: list[torch.Tensor], row: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        one, other = carry
        one = torch.tanh(one + row)
        return [one, other * 2 + row], [one.clone(), (one + other).clone(), row * 2]

    (one, other), rows = scan(step, [torch.zeros(4), torch.ones(4)], torch.sin(x) + 1)
    return one.sum() + other.sum() + sum(row.mean() for row in rows)


def has_tanh_in_a_loop(module: fx.GraphModule, values: list[Any]) -> bool:
    module(*values)
    inner = [graph for graph in module.modules() if isinstance(graph, fx.GraphModule) and graph is not module]
    return any(node.target is torch.tanh for graph in inner for node in graph.graph.nodes)


@pytest.mark.timeout(300, method="thread")  # the reducer needs the alarm: a loop may have lost what ends it
def test_a_loop_keeps_what_ends_it_and_what_fails() -> None:
    module, values = recorded(repeated, shape_of(3, 6), shape_of(6, 6))
    reduction = reduce_graph(module, values, has_tanh_in_a_loop)
    (loop,) = reduction.graph_module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.while_loop)
    assert len(loop.args[2]) == 2
    text = write_program(reduction.graph_module, reduction.inputs, call="$function($arguments)")
    assert "return while_loop[1]" in text
    assert "maximum" not in text


def test_a_scan_keeps_one_value_of_each_kind() -> None:
    module, values = recorded(by_rows, shape_of(6, 4))
    reduction = reduce_graph(module, values, has_tanh_in_a_loop)
    (loop,) = reduction.graph_module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.scan)
    assert len(loop.args[1]) == 1
    assert [user.args[1] for user in loop.users] == [0, 1]
