"""Smaller inputs with which a custom operator breaks another promise are no repro."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule

from dynadiag.minify.broken_promises import broken_in_program, broken_promises

_LIBRARY = torch.library.Library("dynadiag_promises", "DEF")
_LIBRARY.define("head(Tensor x, int n) -> Tensor")
_LIBRARY.impl("head", lambda x, n: x[:n] * 1, "CPU")


@torch.library.register_fake("dynadiag_promises::head", lib=_LIBRARY)
def _(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.new_empty(n, *x.shape[1:])


def graph_of(target: Any) -> GraphModule:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(target, (x, 3)),))
    return GraphModule({}, graph)


@pytest.mark.parametrize("target", [torch.ops.dynadiag_promises.head, torch.ops.dynadiag_promises.head.default])
def test_an_operator_may_keep_in_the_program_what_it_breaks_with_fewer_rows(target: Any) -> None:
    module = graph_of(target)
    assert broken_in_program(module, [torch.ones(4, 2)]) == frozenset()
    broken = {("dynadiag_promises.head.default", "shape")}
    assert broken_promises(module, [torch.ones(2, 2, requires_grad=True)]) == broken


def test_a_graph_of_torchs_operators_promises_nothing() -> None:
    assert broken_in_program(graph_of(operator.add), [torch.ones(4)]) is None
