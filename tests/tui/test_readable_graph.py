"""Graphs as a person writes them: names, shapes, and the way back to what torch printed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.kernels.graph_parser import split_lines
from dynadiag.render.readable_graph import readable_lines
from tests.tui.conftest import browsing, press
from tui.documents import Document, DocumentRef, readable_graph
from tui.line_links import LineKey, LineLinks
from tui.views.code import CodeView

PRINTED = """\
class GraphModule(torch.nn.Module):
    def forward(self, L_self_modules_blocks_modules_0_parameters_weight_: "f32[4, 4][4, 1]cpu", L_x_: "f32[2, 4][4, 1]cpu"):
        l_self_modules_blocks_modules_0_parameters_weight_ = L_self_modules_blocks_modules_0_parameters_weight_
        l_x_ = L_x_

        # File: net.py:7 in forward, code: x = self.blocks[0](x)
        x: "f32[2, 4][4, 1]cpu" = torch._C._nn.linear(l_x_, l_self_modules_blocks_modules_0_parameters_weight_, None);  l_x_ = l_self_modules_blocks_modules_0_parameters_weight_ = None
        add: "f32[2, 4][4, 1]cpu" = torch.ops.aten.add.Tensor(x, 1.0);  x = None
        own: "f32[2, 4][4, 1]cpu" = torch.ops.mylib.twice.default(add);  add = None
        cond = torch.ops.higher_order.cond(True, true_0, true_0, (own,));  own = None
        return (cond,)

    class true_0(torch.nn.Module):
        def forward(self, arg0_1: "f32[2, 4][4, 1]cpu"):
            # File: net.py:9 in <lambda>, code: torch.sin
            sin: "f32[2, 4][4, 1]cpu" = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None
            return (sin,)
"""  # noqa: E501 - as torch prints it


def _document(text: str) -> Document:
    return Document(DocumentRef("event:1", "graph", "dynamo graph"), split_lines(text), ())


def test_a_graph_reads_as_code() -> None:
    shown, _ = readable_graph(_document(PRINTED), LineLinks())
    assert list(zip(shown.lines, shown.margins, strict=True)) == [
        ("inputs: input.x, blocks.0.weight", ""),
        ("x = linear(input.x, blocks.0.weight, None)", "f32[2,4]"),
        ("add = add(x, 1.0)", "f32[2,4]"),
        ("own = mylib.twice(add)", "f32[2,4]"),
        ("cond = higher_order.cond(True, true_0, true_0, (own,))", ""),
        ("return (cond,)", ""),
        ("subgraph true_0:", ""),
        ("inputs: arg0_1", ""),
        ("    sin = sin(arg0_1)", "f32[2,4]"),
        ("    return (sin,)", ""),
    ]


def test_parameters_of_a_global_module_have_their_names() -> None:
    printed = PRINTED.replace("L_self_modules", "G_net_modules").replace("l_self_modules", "g_net_modules")
    shown, _ = readable_graph(_document(printed), LineLinks())
    assert shown.lines[:2] == [
        "inputs: input.x, net.blocks.0.weight",
        "x = linear(input.x, net.blocks.0.weight, None)",
    ]


def test_an_input_and_a_value_of_one_name_are_told_apart() -> None:
    shown, _ = readable_graph(_document(PRINTED), LineLinks())
    assert shown.lines[1].startswith("x = linear(input.x"), "the user gave `x` a second value"
    other = PRINTED.replace(' x: "', ' y: "').replace("(x, 1.0)", "(y, 1.0)").replace("  x = None", "  y = None")
    assert readable_graph(_document(other), LineLinks())[0].lines[1] == "y = linear(x, blocks.0.weight, None)"


@given(st.integers(0, len(PRINTED.splitlines()) - 1))
def test_lines_and_links_lead_back_to_what_was_printed(row: int) -> None:
    printed = _document(PRINTED)
    key: LineKey = ("net.py", row)
    shown, links = readable_graph(printed, LineLinks({row: frozenset({key})}))
    line = shown.line_of(row)
    assert shown.row_of(line) >= row or line == len(shown.lines) - 1
    assert links.lines_of([key]) == ((line,) if shown.row_of(line) == row else ())


OF_AOT = """\
class <lambda>(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[4][1]cpu",  # PlainAOTInput(idx=0)
        primals_2: "f32[4][1]cpu",  # ParamAOTInput(target='net.weight')
    ):
        # File: net.py:7 in forward, code: return x * self.weight
        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(primals_1, primals_2);  primals_2 = None
        return (
            mul,  # PlainAOTOutput(idx=0)
            primals_1,  # SavedForBackwardsAOTOutput(idx=0)
        )
"""


def test_inputs_and_results_on_lines_of_their_own_are_one_line() -> None:
    printed = _document(OF_AOT)
    shown, _ = readable_graph(printed, LineLinks())
    whole = ["inputs: primals_1, primals_2", "mul = mul(primals_1, primals_2)", "return (mul, primals_1)"]
    assert shown.lines == whole
    assert [shown.line_of(row) for row in (3, 4)] == [0, 0], "an input leads to the line of the inputs"
    one = _document(OF_AOT.replace("            primals_1,  # SavedForBackwardsAOTOutput(idx=0)\n", ""))
    assert readable_graph(one, LineLinks())[0].lines[-1] == "return (mul,)"


def test_what_is_done_in_place_is_a_line() -> None:
    printed = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu"):
        l_x_ = L_x_

        clone: "f32[3][1]cpu" = l_x_.clone()
        l_x_[slice(1, None, None)] = clone;  setitem = l_x_;  clone = setitem = None
        l_x_ += 2;  x: "f32[4][1]cpu" = l_x_;  l_x_ = None
        return (x,)
"""
    lines = list(readable_lines(printed.split("\n")))
    assert [line.text for line in lines[2:]] == [
        "input.x[slice(1, None, None)] = clone",
        "input.x += 2;  x = input.x",
        "return (x,)",
    ]
    assert lines[3].margin == "f32[4]"


def test_a_text_that_is_no_graph_stays_as_it_is() -> None:
    document = _document("no graph\n  here: only = words\n")
    assert readable_graph(document, LineLinks()) == (document, LineLinks())


async def test_a_key_shows_what_torch_printed_at_the_same_node(program: Path) -> None:
    async with browsing(program, (200, 60)) as pilot:
        await press(pilot, "3", "tab")
        view = pilot.app.query_one(CodeView)
        pane = view.pane("dynamo")
        pane.move_to(next(line for line in range(pane.count) if "relu" in pane.text_of(line)))
        readable = pane.text_of(pane.cursor)
        await press(pilot, "p")
        assert pane.text_of(pane.cursor).lstrip().startswith('z: "f32')
        await press(pilot, "p")
        assert pane.text_of(pane.cursor) == readable == "z = relu(y)"


async def test_findings_stand_at_their_lines(program: Path) -> None:
    async with browsing(program, (200, 60)) as pilot:
        await press(pilot, "3", "full_stop")
        source = pilot.app.query_one(CodeView).pane("source")
        note = source.notes[source.cursor]
        assert (note.sign, "print(" in source.text_of(source.cursor)) == ("⚠", True)
        assert "GB0059" in note.text
        first = source.cursor
        await press(pilot, "full_stop")
        assert source.cursor in source.notes
        await press(pilot, "comma")
        assert source.cursor == first
