"""The node under the cursor: what it reads and what reads it."""

from __future__ import annotations

from dynadiag.kernels.graph_parser import parse_graph, split_lines
from tests.tui.build import DYNAMO, POST_GRAD
from tui.graph_node import GraphNodes, NodeDetails


def _node(text: str, start: str) -> NodeDetails | None:
    lines = split_lines(text)
    index = next(number for number, line in enumerate(lines) if line.strip().startswith(start))
    return GraphNodes(parse_graph(text)).on_row(index, lines)


def test_inputs_and_users_by_name() -> None:
    node = _node(POST_GRAD, "sin:")
    assert node is not None
    assert node.value == "f32[4][1]cpu"
    assert node.expression == "torch.ops.aten.sin.default(arg0_1)"
    assert [name for name, _ in node.inputs] == ["arg0_1"]
    assert [name for name, _ in node.users] == ["relu"]


def test_an_input_of_dynamo_is_on_the_line_of_the_inputs() -> None:
    node = _node(DYNAMO, "y:")
    assert node is not None
    assert [split_lines(DYNAMO)[line].strip()[:11] for _, line in node.inputs] == ["def forward"]


def test_what_is_done_in_place_is_a_node_and_a_use() -> None:
    printed = DYNAMO.replace(
        "        return (z,)", '        z *= y;  imul: "f32[4][1]cpu" = z;  z = None\n        return (imul,)'
    )
    node = _node(printed, "z *=")
    assert node is not None
    assert (node.name, node.value, node.expression) == ("imul", "f32[4][1]cpu", "z *= y")
    assert [name for name, _ in node.inputs] == ["z", "y"]
    relu = _node(printed, "z:")
    assert relu is not None
    assert [name for name, _ in relu.users] == ["imul"]


def test_what_frees_a_node_is_no_use_of_it() -> None:
    node = _node(DYNAMO, "y:")
    assert node is not None
    assert [name for name, _ in node.inputs] == ["x"]  # as the graph is shown
    assert node.expression == "x.sin()"
    assert [name for name, _ in node.users] == ["z"]


def test_an_input_that_has_the_name_of_a_node_is_told_apart() -> None:
    node = _node(DYNAMO.replace("y:", "x:").replace("y.", "x.").replace("y =", "x ="), "x:")
    assert node is not None
    assert (node.name, [name for name, _ in node.inputs]) == ("x", ["input.x"])


def test_the_output_is_a_user() -> None:
    node = _node(DYNAMO, "z:")
    assert node is not None
    assert [name for name, _ in node.users] == ["output"]


def test_the_output_is_a_user_where_each_result_has_a_line() -> None:
    printed = POST_GRAD.replace("return (relu,)", "return (\n            relu,  # PlainAOTOutput(idx=0)\n        )")
    for start, users in (("relu:", ["output"]), ("sin:", ["relu"])):
        node = _node(printed, start)
        assert node is not None
        assert [name for name, _ in node.users] == users


def test_a_comment_defines_no_node() -> None:
    assert _node(DYNAMO, "# File") is None
