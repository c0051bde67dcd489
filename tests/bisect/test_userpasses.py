"""Which functions beside a custom backend are passes."""

from __future__ import annotations

from typing import Any

import pytest
from torch.fx import Graph, GraphModule

from dynadiag.bisect.userpasses import _may_give_graph


def folds(gm: GraphModule) -> GraphModule:
    return gm


def in_place(graph: Graph) -> None: ...


def says_nothing(gm):  # type: ignore[no-untyped-def]
    return gm


def anything(gm: GraphModule) -> Any:
    return gm


def table(gm: GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes]


def size(gm: GraphModule) -> int:
    return len(gm.graph.nodes)


@pytest.mark.parametrize("function", [folds, in_place, says_nothing, anything])
def test_a_function_that_may_give_a_graph_is_a_pass(function: Any) -> None:
    assert _may_give_graph(function)


@pytest.mark.parametrize("function", [table, size])
def test_a_function_that_gives_something_else_is_none(function: Any) -> None:
    """Leaving it out would leave its caller without what it asked for: a failure of our own making."""
    assert not _may_give_graph(function)
