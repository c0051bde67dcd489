"""Arguments and targets of nodes as the recorder writes them."""

from __future__ import annotations

import json
import math
import operator
from typing import Any

import pytest
import torch

from dynadiag.capture.graphs import encode_argument, graph_json, target_name


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ([1, 2], [1, 2]),
        (list(range(1_000)), list(range(1_000))),
        (list(range(1_001)), {"?": "list of 1001"}),
        (torch.Size([2, 3]), {"t": [2, 3]}),
        (math.inf, {"float": "inf"}),
        ({"dim": (0, 1)}, {"dict": [["dim", {"t": [0, 1]}]]}),
    ],
)
def test_an_argument_is_written_as_json_and_a_long_list_by_its_length(value: Any, written: Any) -> None:
    assert json.loads(json.dumps(encode_argument(value))) == written


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("layers.0", "layers.0"),
        (torch.ops.aten.relu.default, "torch.ops.aten.relu.default"),
        (operator.add, "_operator.add"),
        (torch.nn.functional.silu, "torch.nn.functional.silu"),
        (object(), "object"),
    ],
)
def test_a_target_has_the_name_by_which_it_is_found(target: Any, name: str) -> None:
    assert target_name(target) == name


def test_a_node_names_its_stack_and_its_modules_which_are_written_once() -> None:
    graph = torch.fx.symbolic_trace(lambda x: (x + 1).relu() * 2).graph
    add, relu, mul = (node for node in graph.nodes if node.op.startswith("call_"))
    add.meta["stack_trace"] = relu.meta["stack_trace"] = "somewhere"
    for node, path in ((relu, "L['self'].act"), (mul, "L['self'].act")):
        node.meta["nn_module_stack"] = {"act": (path, torch.nn.ReLU)}
    written = json.loads(graph_json(graph))
    assert (written["stacks"], written["modules"]) == (["somewhere"], [["L['self'].act"]])
    named = {node["name"]: (node.get("stack"), node.get("modules")) for node in written["nodes"]}
    assert named == {"x": (None, None), "add": (0, None), "relu": (0, 0), "mul": (None, 0), "output": (None, None)}
