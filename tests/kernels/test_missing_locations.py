"""Lines of nodes for which torch has none."""

from __future__ import annotations

from dynadiag.kernels.graph_parser import PrintedGraph, SourceLine, parse_graph
from dynadiag.kernels.source_lines import (
    CompileContext,
    locate_replaced_nodes,
    locate_retraced_bodies,
    replaced_nodes,
)

_FILE = "/home/x/net.py"


def _graph(*statements: tuple[int | None, str], returns: str = "x") -> PrintedGraph:
    """A graph of ``x`` with these statements, each with its line of the program."""
    lines = ["class M(torch.nn.Module):", '    def forward(self, x: "f32[4]"):']
    for line, statement in statements:
        lines += ["", *([f"        # File: {_FILE}:{line} in f, code: y"] if line else []), f"        {statement}"]
    return parse_graph("\n".join([*lines, f"        return ({returns},)"]))


def _lines(graph: PrintedGraph) -> dict[str, int | None]:
    return {
        name: node.source_line.line if node.source_line else None for name, node in graph.nodes.items() if node.computes
    }


def test_a_node_has_the_lines_of_what_it_replaced() -> None:
    before = _graph((3, "mm = aten.mm(x, x)"), (4, "add = aten.add(mm, x)"), returns="add")
    after = _graph((None, "addmm = aten.addmm(x, x, x)"), returns="addmm")
    located = locate_replaced_nodes(after, CompileContext(before_passes=before))
    assert _lines(located) == {"addmm": 3}
    assert [place.line for place in located.nodes["addmm"].source_lines] == [3, 4]


def test_what_reads_a_new_node_says_what_it_replaced() -> None:
    """The scale in front of a softmax: a pass moves it behind the maximum, and prints no line of the new nodes."""
    before = _graph(
        (2, "sin = aten.sin(x)"),
        (3, "mul = aten.mul(sin, 2.0)"),
        (4, "amax = aten.amax(mul, [1])"),
        (4, "sub = aten.sub(mul, amax)"),
        (4, "exp = aten.exp(sub)"),
        (5, "cos = aten.cos(x)"),
        returns="exp",
    )
    after = _graph(
        (2, "sin = aten.sin(x)"),
        (None, "amax_default = aten.amax(sin, [1])"),
        (None, "sub_tensor = aten.sub(sin, amax_default)"),
        (None, "mul_tensor = aten.mul(sub_tensor, 2.0)"),
        (4, "exp = aten.exp(mul_tensor)"),
        (None, "tan = aten.tan(x)"),
        returns="exp",
    )
    new = ("mul", "amax", "sub")
    assert replaced_nodes(before, after) == dict.fromkeys(("mul_tensor", "sub_tensor", "amax_default"), new)
    nodes = locate_replaced_nodes(after, CompileContext(before_passes=before)).nodes
    assert [place.line for place in nodes["amax_default"].source_lines] == [3, 4]
    assert nodes["tan"].source_lines == (), "nothing says what it is in the place of"


def test_a_node_whose_pass_came_before_has_the_line_of_what_reads_it() -> None:
    """A stable softmax: the pass inserts nodes that scale before the maximum."""
    after = _graph(
        (3, "mm = aten.mm(x, x)"),
        (None, "div_tensor = aten.div(mm, 2.0)"),
        (None, "amax_default = aten.amax(div_tensor, [1])"),
        (None, "sub_tensor = aten.sub(div_tensor, amax_default)"),
        (5, "exp = aten.exp(sub_tensor)"),
        (None, "unused = aten.sin(x)"),
    )
    found = _lines(locate_replaced_nodes(after, CompileContext(before_passes=after)))
    assert found == {"mm": 3, "div_tensor": 5, "amax_default": 5, "sub_tensor": 5, "exp": 5, "unused": None}


_CALL = "# File: /home/x/net.py:9 in f, code: scan(step, x)"


def _called(operator: str, *body: str) -> PrintedGraph:
    return parse_graph(
        "\n".join(
            [
                "class M(torch.nn.Module):",
                '    def forward(self, x: "f32[4]"):',
                f"        {_CALL}",
                "        step_0 = self.step_0",
                f"        {operator} = higher_order.{operator}(step_0, x)",
                f"        return ({operator},)",
                "",
                "    class step_0(torch.nn.Module):",
                '        def forward(self, x: "f32[4]"):',
                *(f"            {line}" for line in body),
            ]
        )
    )


def test_a_body_that_was_traced_again_has_the_lines_of_dynamos() -> None:
    dynamo = _called("scan", "# File: /home/x/net.py:5 in step, code: x.sin()", "sin = x.sin()", "return (sin,)")
    graph = _called("while_loop", "add = aten.add(x, 1)", "sin = aten.sin(x)", "return (sin, add)")
    nodes = locate_retraced_bodies(graph, CompileContext(dynamo)).nodes
    assert nodes["step_0_sin"].source_line == SourceLine(_FILE, 5)
    assert nodes["step_0_add"].source_line == SourceLine(_FILE, 9), "the line of the loop itself"
