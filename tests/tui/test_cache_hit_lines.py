"""A graph out of torch's cache bears the lines of the program that put it there."""

from __future__ import annotations

from tests.tui.build import FILE
from tui.cache_hit_lines import cache_hit_lines
from tui.documents import split_lines
from tui.line_links import NodeNames, graph_links


def _graph(*pairs: tuple[str, int]) -> list[str]:
    """One node for each operator, below a comment with its line."""
    lines = ["class GraphModule(torch.nn.Module):", '    def forward(self, x: "f32[4]"):']
    before = "x"
    for number, (operator, line) in enumerate(pairs):
        name = f"{operator}_{number}"
        lines += [
            f"        # File: {FILE}:{line} in f, code: ...",
            f'        {name}: "f32[4]" = torch.{operator}({before})',
            "",
        ]
        before = name
    return [*lines, f"        return ({before},)"]


DYNAMO = _graph(("sin", 6), ("relu", 7))


def test_its_nodes_have_the_lines_of_this_run() -> None:
    cached = _graph(("sin", 16), ("relu", 17))
    own = cache_hit_lines("post_grad graph", cached, DYNAMO, None)
    assert own == {"sin_0": (FILE, 6), "relu_1": (FILE, 7)}
    links = graph_links(cached, NodeNames(), own, believed=False)
    assert [number for number in range(len(cached)) if links.keys_of(number) == {(FILE, 6)}] == [2, 3]
    assert links.lines_of([(FILE, 16)]) == ()
    assert links.inferred == {2, 3, 5, 6}


def test_what_has_no_match_has_no_line() -> None:
    cached = _graph(("sin", 16), ("cos", 18))
    own = cache_hit_lines("post_grad graph", cached, DYNAMO, None)
    assert own == {"sin_0": (FILE, 6)}
    links = graph_links(cached, NodeNames(), own, believed=False)
    assert links.keys_of(5) == links.keys_of(6) == frozenset()


def test_a_graph_of_this_run_is_believed() -> None:
    assert cache_hit_lines("post_grad graph", DYNAMO, DYNAMO, None) is None


def test_a_backward_graph_has_the_lines_of_the_forward_ones_nodes() -> None:
    backward = split_lines(
        'class M:\n    def forward(self, tangents_1: "f32[4]"):\n' + "\n".join(_graph(("neg", 17))[2:])
    )
    forward = _graph(("sin", 16), ("relu", 17))
    assert cache_hit_lines("backward graph", backward, DYNAMO, forward) == {"neg_0": (FILE, 7)}
