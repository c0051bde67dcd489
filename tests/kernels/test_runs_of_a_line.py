"""A line that is run once for each layer: each node of a later graph leads to Dynamo's nodes of its own run."""

from __future__ import annotations

import pytest

from dynadiag.kernels.generated_module import GeneratedModule, dynamo_nodes_of
from dynadiag.kernels.graph_parser import parse_graph
from dynadiag.kernels.module_parser import parse_module

HEAD = "class GraphModule(torch.nn.Module):\n    def forward(self, x):\n"
LINE = "        # File: /a/layer.py:5 in forward, code: x = torch.addmm(b, x.view(-1), w)\n"
DYNAMO = HEAD + "".join(
    f"{LINE}        view_{n} = x.view(-1)\n        product_{n} = torch.addmm(x, view_{n}, x)\n" for n in range(3)
)
ATEN = "".join(f"{LINE}        addmm_{n} = torch.ops.aten.addmm.default(x, x, x)\n" for n in range(3))
TWICE = "".join(
    f"{LINE}        mul_{n} = torch.ops.aten.mul.Tensor(x, x)\n        add_{n} = torch.ops.aten.add.Tensor(x, x)\n"
    for n in range(3)
)


def _unit(aten: str, stage: str) -> GeneratedModule:
    module = parse_module(f"# AOT ID: ['0_{stage}']\n")
    return GeneratedModule(1, "0/0", module, parse_graph(HEAD + aten), 0, parse_graph(DYNAMO))


@pytest.mark.parametrize("aten", [ATEN, TWICE])
def test_the_nodes_of_each_run_are_dealt_out_in_order(aten: str) -> None:
    unit = _unit(aten, "inference")
    found = {name: dynamo_nodes_of(unit, node) for name, node in unit.graph.nodes.items() if node.target}
    assert found == {name: (f"view_{name[-1]}", f"product_{name[-1]}") for name in found}
    assert found


def test_nodes_that_no_order_tells_apart_lead_to_all_runs() -> None:
    both = ATEN + f"{LINE}        addmm_3 = torch.ops.aten.addmm.default(x, x, x)\n"
    for unit in (_unit(both, "inference"), _unit(ATEN, "backward")):
        names = dynamo_nodes_of(unit, unit.graph.nodes["addmm_0"])
        assert names == ("view_0", "product_0", "view_1", "product_1", "view_2", "product_2")
