from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, symbolic_trace

from dynadiag.minify.missing_eager_error import reduce_missing_eager_error


def scaled_then_reshaped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * 2 + y).view(7)


def test_the_operation_that_raises_is_left_with_plain_inputs() -> None:
    asked: list[int] = []

    def fails(module: GraphModule, _: list[Any]) -> bool:
        asked.append(len(module.graph.nodes))
        return any(node.target == "view" for node in module.graph.nodes)

    module, inputs = reduce_missing_eager_error(
        symbolic_trace(scaled_then_reshaped), [torch.randn(4, 4), torch.randn(4, 4)], fails
    )
    assert [node.target for node in module.graph.nodes if node.op == "call_method"] == ["view"]
    assert [tuple(x.shape) for x in inputs] == [(1, 1)]
    assert inputs[0].tolist() == [[1.0]]
    assert asked


def test_inputs_on_which_it_no_longer_raises_are_not_asked_about() -> None:
    def fails(module: GraphModule, values: list[Any]) -> bool:
        try:
            module(*values)
        except RuntimeError:
            return True
        raise AssertionError("asked about a candidate that does not raise")

    traced = symbolic_trace(lambda x: x.view(2, 2))
    _, inputs = reduce_missing_eager_error(traced, [torch.randn(3, 3)], fails)
    assert inputs[0].numel() != 4
