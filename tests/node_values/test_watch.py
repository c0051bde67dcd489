"""The calls of compiled graphs that are watched."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import torch
from torch import fx

from dynadiag.capture.settings import ValueOptions
from dynadiag.node_values.watch import _Graph, _Watcher


def test_a_forward_call_is_kept_until_its_backward_was_called() -> None:
    watcher = _Watcher(MagicMock(), ValueOptions())
    module = fx.symbolic_trace(lambda x: (x.sin(),))
    forward = _Graph(module, "0/0", "forward")
    backward = _Graph(module, "0/0", "backward", frame=forward)
    kept = []

    def call(given: Any) -> Any:
        kept.append(forward.forward)
        return module(*given)

    x = torch.ones(2)
    assert torch.equal(watcher._observed(forward, call, (x,))[0], x.sin())
    assert forward.forward is not None
    assert forward.forward.inputs[0] is x
    watcher._observed(backward, call, [x])
    assert kept[0] is not None
    assert forward.forward is None


def test_of_an_inference_no_call_is_kept() -> None:
    graph = _Graph(fx.symbolic_trace(lambda x: (x.sin(),)), "0/0", "inference")
    _Watcher(MagicMock(), ValueOptions())._observed(graph, lambda given: graph.module(*given), (torch.ones(2),))
    assert graph.forward is None


def test_a_graph_that_was_compiled_in_one_direction_is_a_forward_where_its_inputs_have_gradients() -> None:
    module = fx.symbolic_trace(lambda x: (x.sin(),))
    for requires_grad, kind in ((True, "forward"), (False, "inference")):
        graph = _Graph(module, "0/0", None)
        given = (torch.ones(2, requires_grad=requires_grad),)
        _Watcher(MagicMock(), ValueOptions())._observed(graph, lambda each: module(*each), given)
        assert (graph.graph, graph.lacks_backward, graph.forward) == (kind, requires_grad, None)
