"""Which of the linked lines enter leads to, and what became of a line that leads to none."""

from __future__ import annotations

from unittest.mock import Mock

from tests.tui.build import DYNAMO, FILE
from tui.code_panes import CodePaneModel, gone_text
from tui.documents import DocumentRef
from tui.line_links import LineLinks

SIN = (FILE, 6)


def test_the_first_operator_is_no_comment_and_no_alias() -> None:
    lines = DYNAMO.split("\n")
    mapped = [number for number, text in enumerate(lines) if "sin" in text or "l_x_ = L_x_" in text]
    links = LineLinks({line: frozenset({SIN}) for line in mapped})
    found = links.first_operator({SIN}, lines)
    assert found is not None
    assert lines[found].strip().startswith("y:")
    assert found != mapped[0]
    assert links.first_operator({SIN}, ["# nothing else"] * len(lines)) == mapped[0]
    assert links.first_operator({(FILE, 99)}, lines) is None


def test_the_head_of_a_kernel_is_no_operator() -> None:
    lines = ["cpp_fused_relu_1 = async_compile.cpp_pybinding(['const float*'], r'''", "", "    auto tmp0 = in_ptr0[0];"]
    assert LineLinks({line: frozenset({SIN}) for line in range(3)}).first_operator({SIN}, lines) == 2


def test_of_a_line_without_code_it_is_said_in_which_graph_it_was_last() -> None:
    key = ("/prog.py", 3)
    dynamo, *later = (
        DocumentRef(f"event:{at}", "graph", name) for at, name in enumerate(("Dynamo's graph", "before", "after"))
    )
    code = DocumentRef("event:9", "kernel", "generated code")
    shown = {"source": [], "dynamo": [dynamo], "later": later, "kernel": [code], "stage": []}
    made, none = LineLinks({0: frozenset({key})}), LineLinks()
    board = CodePaneModel("0/0", None, Mock(), shown)  # nothing is linked here
    board.links = {"event:0": made, "event:1": made, "event:2": none, "event:9": none}
    assert gone_text(board, {key}) == "not in the generated code: last in before, gone in after"
    board.links["event:2"] = made
    assert gone_text(board, {key}) == "not in the generated code: last in after: no kernel computes it"
    board.links["event:9"] = made
    assert gone_text(board, {key}) == ""
