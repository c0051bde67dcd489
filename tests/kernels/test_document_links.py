"""The source lines behind each line of a graph or of a generated module."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.kernels.document_links import CompileLinker, DocumentLinks
from dynadiag.kernels.graph_parser import SourceLine
from tests.tui.build import DYNAMO, FILE, MODULE, POST_GRAD
from tui.line_links import pane_links, source_links

SIN, RELU = SourceLine(FILE, 6), SourceLine(FILE, 7)


def _starts(links: DocumentLinks, text: str, line: SourceLine) -> list[str]:
    """The first word of each line that is linked to a source line."""
    lines = text.split("\n")
    return [lines[number - 1].strip().split(" ")[0] for number in sorted(links.lines) if line in links.lines[number]]


def _linker() -> CompileLinker:
    linker = CompileLinker()
    linker.dynamo_graph(DYNAMO, {"l_x_": SIN})
    linker.later_graph(POST_GRAD)
    return linker


def test_a_node_is_linked_to_the_line_in_the_comment_above_it() -> None:
    links = CompileLinker().dynamo_graph(DYNAMO, {})
    assert _starts(links, DYNAMO, SIN) == ["#", "y:"]
    assert _starts(links, DYNAMO, RELU) == ["#", "z:"]


def test_a_node_without_a_comment_has_its_recorded_line() -> None:
    links = CompileLinker().dynamo_graph(DYNAMO, {"l_x_": SIN})
    assert _starts(links, DYNAMO, SIN) == ["l_x_", "#", "y:"]


def test_a_return_and_an_empty_line_have_no_mapping() -> None:
    links = CompileLinker().dynamo_graph(DYNAMO, {})
    for number, text in enumerate(DYNAMO.split("\n"), 1):
        if not text.strip() or "return" in text:
            assert number not in links.lines


def test_a_triton_kernel_is_linked_by_the_nodes_in_its_comment() -> None:
    links = _linker().module(MODULE, None)
    found = _starts(links, MODULE, SIN)
    assert found[:3] == ["#", "#", "#"]
    assert "triton_poi_fused_sin_0" in found
    assert "@triton.jit" in found
    assert not [number for number in links.inferred if SIN in links.lines[number]]


def test_a_cpp_kernel_is_linked_by_the_operators_in_its_name_as_inferred() -> None:
    links = _linker().module(MODULE, None)
    lines = MODULE.split("\n")
    definition = next(number for number, text in enumerate(lines, 1) if text.startswith("cpp_fused_relu_1 ="))
    assert links.lines[definition] == {RELU}
    assert definition in links.inferred


def test_a_call_is_linked_by_its_kernel_or_by_its_comment() -> None:
    found = _starts(_linker().module(MODULE, None), MODULE, RELU)
    assert "cpp_fused_relu_1(arg0_1)" in found
    assert "extern_kernels.addmm(arg0_1)" in found


def test_a_source_line_is_linked_if_another_document_names_it() -> None:
    links = source_links(FILE, 14, {(FILE, 6), (FILE, 7), ("other.py", 3), (FILE, 99)})
    assert sorted(links.keys) == [5, 6]


@given(st.text(alphabet=st.sampled_from("ab_ #:=()[],'\"\n\t"), max_size=400), st.text(max_size=200))
def test_whatever_a_recording_holds_links_are_of_its_lines(first: str, second: str) -> None:
    text = f"{DYNAMO}\n{first}\n{second}"
    linker = CompileLinker()
    for links in (linker.dynamo_graph(text, {}), linker.later_graph(text), linker.module(text, None)):
        assert all(1 <= number <= text.count("\n") + 1 for number in links.lines)
        assert links.inferred <= links.lines.keys()
        inverted = pane_links(links)
        assert all(key in inverted.keys_of(line) for key, lines in inverted.lines.items() for line in lines)


_LIBRARY = """class GraphModule(torch.nn.Module):
    def forward(self, x):
        # File: /lib/torch/collectives.py:179 in all_reduce, code: tensor = all_reduce(
        first: "f32[4]" = torch.ops.c10d.all_reduce(x)

        # File: /lib/torch/collectives.py:179 in all_reduce, code: tensor = all_reduce(
        second: "f32[4]" = torch.ops.c10d.all_reduce(first)

        # File: prog.py:7 in f, code: y.relu()
        relu: "f32[4]" = torch.relu(second)
"""


def _of_program(links: DocumentLinks) -> dict[int, list[int]]:
    return {number: sorted(one.line for one in found if one.file == "prog.py") for number, found in links.lines.items()}


def test_a_line_of_torch_stands_for_the_users_line_that_called_it() -> None:
    """The recorded line of a node replaces that of its comment, which is the innermost frame."""
    linker = CompileLinker()
    lines = _LIBRARY.split("\n")
    spans = {"first": SourceLine("prog.py", 5), "relu": SourceLine("prog.py", 7)}
    dynamo = linker.dynamo_graph("\n".join(lines[:4] + lines[7:]), spans)
    assert [_of_program(dynamo)[number] for number in (3, 4)] == [[5], [5]]
    later = linker.later_graph(_LIBRARY)
    assert [_of_program(later)[number] for number in (4, 6, 9)] == [[5], [5], [7]]
    assert not later.inferred


def test_a_line_of_torch_that_two_lines_called_is_inferred_in_later_graphs() -> None:
    linker = CompileLinker()
    spans = {name: SourceLine("prog.py", line) for name, line in (("first", 5), ("second", 6), ("relu", 7))}
    dynamo = linker.dynamo_graph(_LIBRARY, spans)
    assert [_of_program(dynamo)[number] for number in (4, 7)] == [[5], [6]]
    assert not dynamo.inferred
    later = linker.later_graph(_LIBRARY)
    assert [_of_program(later)[number] for number in (4, 7)] == [[5, 6], [5, 6]]
    assert later.inferred == {4, 7}


def test_the_prefix_of_torch_2_15_is_read() -> None:
    text = POST_GRAD.replace("# File:", "# Backward of forward node: File:")
    assert _starts(CompileLinker().later_graph(text), text, SIN) == ["#", "sin:"]


def test_an_assignment_to_items_has_the_line_above_it() -> None:
    """A wrong pass was about such a line."""
    text = "\n".join(
        [
            "    def forward(self, x):",
            "        # File: prog.py:5 in f, code: x[1:] = x[:-1].clone()",
            '        clone: "f32[3]" = x.clone()',
            "        x[slice(1, None, None)] = clone;  setitem = x;  clone = setitem = None",
            "        return (x,)",
        ]
    )
    for links in (CompileLinker().dynamo_graph(text, {}), CompileLinker().later_graph(text)):
        assert sorted(links.lines) == [2, 3, 4]


def _graph(*pairs: tuple[str, int]) -> str:
    """A graph with one node for each operator, below a comment with its line."""
    lines = ["class GraphModule(torch.nn.Module):", '    def forward(self, x: "f32[4]"):']
    before = "x"
    for number, (operator, line) in enumerate(pairs):
        name = f"{operator}_{number}"
        lines += [f"        # File: {FILE}:{line} in f, code: ..."]
        lines += [f'        {name}: "f32[4]" = torch.{operator}({before})', ""]
        before = name
    return "\n".join([*lines, f"        return ({before},)"])


_OWN = _graph(("sin", 6), ("relu", 7))


def test_a_graph_from_the_cache_gets_the_lines_of_this_run_as_inferred() -> None:
    links = CompileLinker().cached_graph("post_grad graph", _graph(("sin", 16), ("relu", 17)), _OWN, None)
    assert links.lines == {number: {line} for number, line in zip((3, 4, 6, 7), (SIN, SIN, RELU, RELU), strict=True)}
    assert links.inferred == {3, 4, 6, 7}


def test_a_node_from_the_cache_without_a_match_has_no_line() -> None:
    links = CompileLinker().cached_graph("post_grad graph", _graph(("sin", 16), ("cos", 18)), _OWN, None)
    assert sorted(links.lines) == [3, 4]


def test_a_graph_of_this_run_keeps_its_lines() -> None:
    links = CompileLinker().cached_graph("post_grad graph", _OWN, _OWN, None)
    assert not links.inferred
    assert links.lines == CompileLinker().later_graph(_OWN).lines


def test_a_backward_graph_from_the_cache_has_the_lines_of_the_forward_nodes() -> None:
    body = "\n".join(_graph(("neg", 17)).split("\n")[2:])
    backward = f'class M:\n    def forward(self, tangents_1: "f32[4]"):\n{body}'
    links = CompileLinker().cached_graph("backward graph", backward, _OWN, _graph(("sin", 16), ("relu", 17)))
    assert set(links.lines.values()) == {frozenset({RELU})}
