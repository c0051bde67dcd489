"""The ATen operators that a graph calls, where Dynamo's graph has a vmap or a gradient in it."""

from __future__ import annotations

import linecache
from typing import Any

import torch
from torch import fx

from dynadiag.torch_private.bisect import user_line
from dynadiag.torch_private.minify import trace_aten_graph


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: torch.atan(row) - row.sum())(x)


def test_each_names_the_line_that_it_comes_from_and_the_graph_no_function_of_ours() -> None:
    found: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, _: Any) -> fx.GraphModule:
        found.append(gm)
        return gm

    torch._dynamo.reset()
    torch.compile(mapped, backend=backend)(torch.ones(2, 3))
    module = trace_aten_graph(found[0], [torch.ones(2, 3)])
    (atan,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.atan.default)
    place = user_line(atan)
    assert place is not None
    assert "torch.atan(row)" in linecache.getline(*place)
    assert type(module).__name__ == "GraphModule"
