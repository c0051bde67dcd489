"""Which lines belong together, derived from what torch writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.tui.build import DYNAMO, FILE, MODULE, POST_GRAD
from tui.documents import split_lines
from tui.line_links import LineLinks, NodeNames, graph_links, kernel_links, source_links

SIN, RELU = (FILE, 6), (FILE, 7)


def _lines(links: LineLinks, text: str, place: tuple[str, int]) -> list[str]:
    lines = split_lines(text)
    return [lines[number].strip().split(" ")[0] for number in links.lines_of({place})]


def _names() -> NodeNames:
    names = NodeNames()
    graph_links(split_lines(DYNAMO), names, {"l_x_": SIN}, dynamo=True)
    graph_links(split_lines(POST_GRAD), names)
    return names


def test_a_graph_ties_nodes_to_the_comment_above_them() -> None:
    links = graph_links(split_lines(DYNAMO), NodeNames(), dynamo=True)
    assert _lines(links, DYNAMO, SIN) == ["#", "y:"]
    assert _lines(links, DYNAMO, RELU) == ["#", "z:"]


def test_a_node_without_a_comment_takes_its_place_from_the_data() -> None:
    links = graph_links(split_lines(DYNAMO), NodeNames(), {"l_x_": SIN}, dynamo=True)
    assert _lines(links, DYNAMO, SIN) == ["l_x_", "#", "y:"]


def test_a_return_and_an_empty_line_have_no_mapping() -> None:
    lines = split_lines(DYNAMO)
    links = graph_links(lines, NodeNames(), dynamo=True)
    for number, text in enumerate(lines):
        if not text.strip() or "return" in text:
            assert links.keys_of(number) == frozenset()


def test_triton_kernels_are_tied_by_the_nodes_that_their_comments_name() -> None:
    links = kernel_links(split_lines(MODULE), _names())
    tied = _lines(links, MODULE, SIN)
    assert tied[:3] == ["#", "#", "#"]
    assert "triton_poi_fused_sin_0" in tied
    assert "@triton.jit" in tied
    assert not links.inferred & set(links.lines_of({SIN}))


def test_a_cpp_kernel_is_tied_by_its_name_and_that_is_a_guess() -> None:
    links = kernel_links(split_lines(MODULE), _names())
    lines = split_lines(MODULE)
    definition = next(number for number, text in enumerate(lines) if text.startswith("cpp_fused_relu_1 ="))
    assert links.keys_of(definition) == {RELU}
    assert definition in links.inferred


def test_calls_are_tied_to_what_they_call() -> None:
    links = kernel_links(split_lines(MODULE), _names())
    tied = _lines(links, MODULE, RELU)
    assert "cpp_fused_relu_1(arg0_1)" in tied
    assert "extern_kernels.addmm(arg0_1)" in tied


def test_a_source_has_counterparts_only_where_something_names_its_lines() -> None:
    links = source_links(FILE, 14, {SIN, RELU, ("other.py", 3), (FILE, 99)})
    assert sorted(links.keys) == [5, 6]


@given(st.lists(st.text(max_size=80), max_size=40))
def test_whatever_a_recording_holds_links_are_consistent(lines: list[str]) -> None:
    names = NodeNames()
    for links in (graph_links(lines, names, dynamo=True), kernel_links(lines, names)):
        for place, numbers in links.lines.items():
            assert all(place in links.keys_of(number) for number in numbers)
        for number, places in links.keys.items():
            assert all(number in links.lines[place] for place in places)
            assert 0 <= number < len(lines)


_LIBRARY = """class GraphModule(torch.nn.Module):
    def forward(self, x):
        # File: /lib/torch/collectives.py:179 in all_reduce, code: tensor = all_reduce(
        first: "f32[4]" = torch.ops.c10d.all_reduce(x)

        # File: /lib/torch/collectives.py:179 in all_reduce, code: tensor = all_reduce(
        second: "f32[4]" = torch.ops.c10d.all_reduce(first)

        # File: prog.py:7 in f, code: y.relu()
        relu: "f32[4]" = torch.relu(second)
"""


def test_a_line_of_torchs_own_is_the_users_that_called_it() -> None:
    """What Dynamo's data says of a node goes before the comment above it, which names the innermost line."""
    names = NodeNames()
    spans = {"first": ("prog.py", 5), "relu": ("prog.py", 7)}
    lines = split_lines(_LIBRARY)
    dynamo = graph_links(lines[:4] + lines[7:], names, spans, dynamo=True)
    assert dynamo.keys_of(2) == dynamo.keys_of(3) == {("prog.py", 5)}
    later = graph_links(split_lines(_LIBRARY), names)
    assert later.keys_of(3) == later.keys_of(5) == {("prog.py", 5)}
    assert later.keys_of(9) == {("prog.py", 7)}
    assert not later.inferred


def test_a_line_of_torchs_own_that_two_lines_called_is_a_guess_in_later_graphs() -> None:
    names = NodeNames()
    spans = {"first": ("prog.py", 5), "second": ("prog.py", 6), "relu": ("prog.py", 7)}
    dynamo = graph_links(split_lines(_LIBRARY), names, spans, dynamo=True)
    assert dynamo.keys_of(3) == {("prog.py", 5)}
    assert dynamo.keys_of(6) == {("prog.py", 6)}
    assert not dynamo.inferred
    later = graph_links(split_lines(_LIBRARY), names)
    assert later.keys_of(3) == {("prog.py", 5), ("prog.py", 6)}
    assert later.inferred == {3, 6}


def test_a_statement_without_a_name_belongs_to_the_line_above_it() -> None:
    """``x[1:] = y`` defines no node; it was what a wrong pass was about."""
    text = [
        "    def forward(self, x):",
        "        # File: prog.py:5 in f, code: x[1:] = x[:-1].clone()",
        '        clone: "f32[3]" = x.clone()',
        "        x[slice(1, None, None)] = clone;  setitem = x;  clone = setitem = None",
        "        return (x,)",
    ]
    for dynamo in (True, False):
        links = graph_links(text, NodeNames(), {}, dynamo=dynamo)
        assert [number for number in range(len(text)) if links.keys_of(number)] == [1, 2, 3]
