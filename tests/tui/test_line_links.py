"""Which of the linked lines Enter leads to."""

from __future__ import annotations

from tests.tui.build import DYNAMO, FILE
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
