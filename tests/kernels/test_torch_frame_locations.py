"""Lines of nodes that torch's own functions made in a compiled function."""

from __future__ import annotations

import pytest

from dynadiag.kernels.graph_parser import PrintedGraph, SourceLine, parse_graph
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.kernels.source_lines import CompileContext, locate_dynamo, locate_torch_frames
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.opening import open_recording
from dynadiag.recording.records import Node, Span
from tests.kernels.recorded import record

_TORCHS = "/env/lib/python3.11/site-packages/torch/nn/attention/flex_attention.py"
_OWN = "/home/x/net.py"


def _graph(*statements: tuple[str, int, str]) -> PrintedGraph:
    lines = ["class M(torch.nn.Module):", '    def forward(self, x: "f32[4]"):']
    for file, line, statement in statements:
        lines += ["", f"        # File: {file}:{line} in f, code: y", f"        {statement}"]
    return parse_graph("\n".join([*lines, "        return (x,)"]))


def _node(name: str, line: int) -> Node:
    return Node(0, name, "call_function", "t", (), "{}", None, None, None, Span(_OWN, line))


DYNAMO = _graph(
    (_OWN, 3, "y = torch.sin(x)"),
    (_TORCHS, 70, "mask = torch.ones(y)"),
    (_TORCHS, 70, "mask_1 = torch.ones(mask)"),
    (_TORCHS, 90, "out = torch.sum(mask_1)"),
)
NODES = [_node("y", 3), _node("mask", 4), _node("mask_1", 5), _node("out", 5)]
AROUND = CompileContext(DYNAMO, NODES)


def test_only_lines_of_torchs_lead_to_another() -> None:
    assert {name: place.line for name, place in AROUND.torch_callers.items()} == {"mask": 4, "mask_1": 5, "out": 5}


CONTAINER = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
compiled = torch.compile(model)
compiled(torch.ones(2, 4)).sum().backward()  # called
"""

OPTIMIZER = """
import torch
weights = [torch.ones(4, requires_grad=True)]
weights[0].grad = torch.ones(4)
optimizer = torch.optim.Adam(weights)

@torch.compile
def step():
    optimizer.step()  # called

step()
"""


@pytest.mark.parametrize(("program", "name"), [(CONTAINER, "container"), (OPTIMIZER, "optimizer")])
def test_a_frame_of_torchs_has_the_line_that_calls_it(program: str, name: str) -> None:
    """Dynamo has no line for a container's frame, and only torch's for an optimizer's: they get the calling line."""
    called = 1 + next(i for i, line in enumerate(program.splitlines()) if line.endswith("# called"))
    with open_recording(record(program, name)) as recording:
        (dynamo,) = (graph for graph in recording.graphs() if graph.stage == "dynamo")
        lines = {node.span.line for node in recording.nodes(dynamo.index) if node.op.startswith("call_")}
        found = generated_modules(recording)
    assert lines == {called}
    nodes = [node for unit in found for node in unit.graph.nodes.values() if node.computes]
    assert len(nodes) > 3
    assert {(not is_user_file(node.source_line.file), node.source_line.line) for node in nodes if node.source_line} == {
        (False, called)
    }


def test_where_no_node_has_a_line_all_have_the_call() -> None:
    text = 'class M(torch.nn.Module):\n    def forward(self, x: "f32[4]"):\n'
    dynamo = parse_graph(text + "        y = torch.sin(x)\n        return (y,)\n")
    lowered = parse_graph(text + "        sin = aten.sin(x)\n        return (sin,)\n")
    around = CompileContext(dynamo, [_node("y", 9)])
    assert locate_torch_frames(lowered, around).nodes["sin"].source_line == SourceLine(_OWN, 9)


def test_a_log_without_dynamos_nodes_keeps_its_lines() -> None:
    assert locate_dynamo(CompileContext(DYNAMO)) == DYNAMO


@pytest.mark.parametrize(
    ("sources", "line"),
    [({"full": ["mask_1"]}, (_OWN, 5)), ({}, (_TORCHS, 70))],
    ids=["told", "one of two calls, and which is not told"],
)
def test_a_node_has_the_line_that_called_torch(sources: dict[str, list[str]], line: tuple[str, int]) -> None:
    lowered = _graph((_OWN, 3, "sin = aten.sin(x)"), (_TORCHS, 70, "full = aten.full(sin)"))
    placed = locate_torch_frames(lowered, CompileContext(DYNAMO, NODES, sources))
    assert [node.source_line for node in placed.nodes.values()] == [None, SourceLine(_OWN, 3), SourceLine(*line)]


def test_a_line_of_one_call_needs_no_word_of_torchs() -> None:
    placed = locate_torch_frames(_graph((_TORCHS, 90, "sum_1 = aten.sum(x)")), AROUND)
    assert placed.nodes["sum_1"].source_line == SourceLine(_OWN, 5)


def test_a_body_of_torchs_own_has_the_line_of_what_it_is_a_part_of() -> None:
    lowered = parse_graph(
        "\n".join(
            [
                "class M(torch.nn.Module):",
                '    def forward(self, x: "f32[4]"):',
                "        mask0 = self.mask0",
                f"        # File: {_OWN}:4 in f, code: y",
                "        flex = torch.ops.higher_order.flex_attention(x, mask0)",
                "        return (flex,)",
                "",
                "    class mask0(torch.nn.Module):",
                '        def forward(self, a: "i32[]"):',
                f"            # File: {_TORCHS}:358 in noop_mask, code: y",
                "            full = aten.full(a)",
                "            return full",
            ]
        )
    )
    placed = locate_torch_frames(lowered, AROUND)
    assert placed.nodes["mask0_full"].source_line == SourceLine(_OWN, 4)
