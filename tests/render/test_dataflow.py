"""The boxes of a drawn graph, and the graph as SVG: what is folded, and that text stays text."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dynadiag.kernels.document_links import read_origins
from dynadiag.kernels.graph_parser import parse_graph
from dynadiag.recording.opening import open_recording
from dynadiag.render.dataflow.boxes import DrawableGraph, FoldedGraph
from dynadiag.render.dataflow.svg import graph_svg
from tests.tui import build

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_s_modules_a_parameters_weight_: "f32[4][1]cpu"):
        l_x_ = L_x_
        l_s_modules_a_parameters_weight_ = L_s_modules_a_parameters_weight_

        # File: net.py:6 in f, code: y = x.sin() * w
        sin: "f32[4][1]cpu" = l_x_.sin();  l_x_ = None
        y: "f32[4][1]cpu" = sin * l_s_modules_a_parameters_weight_;  sin = None

        # File: net.py:7 in f, code: z = relu(y)
        relu: "f32[4][1]cpu" = torch.relu(y);  y = None

        # File: net.py:6 in f, code: y = x.sin() * w
        sin_1: "f32[4][1]cpu" = relu.sin()
        y_1: "f32[4][1]cpu" = sin_1 + relu;  sin_1 = relu = None
        return (y_1,)
"""
MODULES = {"sin": ("a",), "y": ("a",), "relu": ("a",), "sin_1": ("b",), "y_1": ("b",)}


def titles(graph: FoldedGraph) -> list[tuple[str, str]]:
    return [(box.title, box.detail) for box in graph.boxes.values()]


def named_edges(graph: FoldedGraph) -> list[tuple[str, str]]:
    return [(graph.boxes[source].title, graph.boxes[target].title) for source, target in graph.edges]


def test_the_nodes_of_a_source_line_are_one_box_each_time_that_the_line_runs() -> None:
    flow = DrawableGraph(parse_graph(GRAPH))
    folded = flow.fold()
    assert titles(folded) == [
        ("line 6: y = x.sin() * w", "2 nodes"),
        ("relu", "f32[4]"),
        ("line 6: y = x.sin() * w", "2 nodes, returned"),
    ]
    first, relu, second = folded.boxes
    assert folded.edges == ((first, relu), (relu, second))
    assert folded.boxes[first].nodes == ("L_x_", "L_s_modules_a_parameters_weight_", "sin", "y")


def test_an_open_region_shows_its_nodes_and_inputs() -> None:
    flow = DrawableGraph(parse_graph(GRAPH))
    opened = flow.fold(flow.region_keys_of("sin"))
    assert titles(opened)[:4] == [("x", "f32[4]"), ("s.a.weight", "f32[4]"), ("sin", "f32[4]"), ("y = mul", "f32[4]")]
    assert ("s.a.weight", "y = mul") in named_edges(opened)
    assert flow.box_of(opened, "l_x_") == "L_x_"
    assert flow.box_of(opened, "sin_1") in opened.boxes
    assert flow.box_of(opened, "nothing") is None


def test_modules_are_outside_lines() -> None:
    flow = DrawableGraph(parse_graph(GRAPH), MODULES)
    assert titles(flow.fold()) == [("a", "3 nodes"), ("b", "2 nodes, returned")]
    inside = [key.partition(" @")[0] for key in flow.region_keys_of("sin")]
    assert inside == ["module a", "line net.py:6"]


def test_one_region_around_everything_is_open() -> None:
    flow = DrawableGraph(parse_graph(GRAPH), {name: ("model", *chain) for name, chain in MODULES.items()})
    assert titles(flow.fold()) == [("a", "3 nodes"), ("b", "2 nodes, returned")]


@pytest.mark.parametrize(("most", "count"), [(1, 1), (3, 3), (4, 4), (5, 4), (100, 7)])
def test_neighbours_are_as_many_as_there_is_room_for(most: int, count: int) -> None:
    whole = DrawableGraph(parse_graph(GRAPH)).fold(everything=True)
    near = whole.neighbours("relu", most)
    assert "relu" in near.boxes
    assert len(near.boxes) == count
    assert all(edge in whole.edges for edge in near.edges)


def test_text_of_the_program_stays_text() -> None:
    hostile = '</text><script>alert("1")</script>&\x1b[31m'
    flow = DrawableGraph(parse_graph(GRAPH.replace("y = x.sin() * w", hostile)))
    for everything in (False, True):
        root = ElementTree.fromstring(graph_svg(flow.fold(everything=everything)))
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
            "svg", "style", "rect", "polyline", "polygon", "g", "text"
        }  # fmt: skip
    lines = {group.get("data-lines") for group in root.iter("{http://www.w3.org/2000/svg}g")}
    assert "net.py:6" in lines


def test_recorded_modules_are_those_of_the_nodes(tmp_path: Path) -> None:
    nodes = [{"name": "sin", "op": "call_method", "target": "sin", "modules": 0}, {"name": "y", "op": "call_method"}]
    data = {"nodes": nodes, "stacks": [], "modules": [["L['self'].blocks.0", "G['net']"]], "subgraphs": {}}
    here = build.at("0/0")
    for text, expected in ((json.dumps(data), {"sin": ("blocks.0", "net")}), ("{}", {}), ("no JSON", {})):
        events = [*build.run_events(), ({"dynadiag_graph": {"stage": "dynamo"}, **here}, text)]
        made = build.recording(tmp_path, [*events, *build.compile_events("0/0"), *build.end_events()], f"{len(text)}")
        with open_recording(made) as recording:
            found = [
                {name: origin.modules for name, origin in read_origins(recording, graph).items() if origin.modules}
                for graph in recording.graphs()
            ]
        assert found == [expected, {}]
