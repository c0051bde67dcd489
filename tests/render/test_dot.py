"""Graphs as NetworkX graphs and as DOT."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

from dynadiag.__main__ import main
from dynadiag.errors import DynadiagError
from dynadiag.explanation.explanation import explain
from dynadiag.recording.records import Node, Span
from dynadiag.render import dot
from dynadiag.render.dot import dot_text, node_graph, overview_graph, render_graph
from tests.commands.build import recording
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_graph
from tests.render.samples import EVIL, evil, full
from tests.tui import build


def a_node(name: str, *inputs: str, op: str = "call_function", target: str = "aten.relu.default") -> Node:
    return Node(0, name, op, target, inputs, "{}", "(4,)", "torch.float32", "cpu", Span(FILE, 3))


def test_frames_lead_to_graphs_to_breaks_and_on() -> None:
    made = overview_graph(
        explain(
            FakeRecording(
                compile_records=(a_compile(0, "0/0", outcome="break"), a_compile(1, "1/0")),
                graph_records=(a_graph(0), a_graph(1, stage="forward"), a_graph(2, "1/0")),
                break_records=(a_break(0),),
            )
        )
    )
    assert set(made.edges) == {
        ("program", "frame 0/0"),
        ("frame 0/0", "graph 0"),
        ("graph 0", "graph 1"),
        ("graph 0", "break 0"),
        ("break 0", "frame 1/0"),
        ("frame 1/0", "graph 2"),
    }
    assert made.nodes["graph 1"]["stage"] == "forward"
    assert made.nodes["break 0"]["kind"] == "break"


_STAGES = ("dynamo", "joint", "forward", "backward")
_LOWERED = ("before_post_grad", "post_grad")


@pytest.mark.parametrize("more", [0, 1])
def test_forward_and_backward_are_both_made_from_the_joint_graph(more: int) -> None:
    stages = ("pre_grad",) * more + _STAGES + _LOWERED + _LOWERED
    graphs = tuple(a_graph(index, stage=stage) for index, stage in enumerate(stages))
    made = overview_graph(explain(FakeRecording(compile_records=(a_compile(),), graph_records=graphs)))
    joint, forward, backward = (f"graph {stages.index(stage)}" for stage in ("joint", "forward", "backward"))
    assert set(made.successors(joint)) == {forward, backward}
    for half, first in ((forward, len(stages) - 4), (backward, len(stages) - 2)):
        assert list(made.successors(half)) == [f"graph {first}"]
        assert list(made.successors(f"graph {first}")) == [f"graph {first + 1}"]


def test_every_frame_is_connected() -> None:
    compiles = (a_compile(0, "0/0"), a_compile(1, "0/1"), a_compile(2, "1/0", function="other"))
    made = overview_graph(explain(FakeRecording(compile_records=compiles)))
    assert set(made.edges) == {("program", "frame 0/0"), ("frame 0/0", "frame 0/1"), ("program", "frame 1/0")}
    assert made.edges["frame 0/0", "frame 0/1"]["label"] == "compiled again"


def test_a_label_keeps_the_line_of_a_long_path() -> None:
    long = a_compile(file="/elsewhere/" + "a_long_folder/" * 3 + "a_file_with_a_very_long_name" * 3 + ".py", line=1088)
    made = overview_graph(explain(FakeRecording(compile_records=(long,))))
    assert ":1088" in made.nodes["frame 0/0"]["label"]


def test_a_cause_met_twice_is_one_node() -> None:
    made = overview_graph(full())
    assert sum(data["kind"] == "break" for _, data in made.nodes(data=True)) == 2
    assert made.in_degree("break 0") == 2


def test_the_dataflow_of_a_graph() -> None:
    nodes = (a_node("x", op="placeholder"), a_node("relu", "x"), a_node("output", "relu", "gone", op="output"))
    made = node_graph(nodes, "graph 0")
    assert list(nx.topological_sort(made)) == ["x", "relu", "output"]
    assert "aten.relu.default" in made.nodes["relu"]["label"]
    assert "(4,)" in made.nodes["relu"]["label"]


def test_names_are_escaped() -> None:
    nodes = (a_node("<b>", op="placeholder", target="x"), a_node('a:b"\\N]; evil [label="', "<b>"))
    text = dot_text(node_graph(nodes, 'g"\n{'))
    assert text.count("[label=") - text.count('\\"') <= 4
    assert 'label="<b>\\n' in text
    assert '\\"\\\\N]; evil [label=\\"' in text
    alone = nx.DiGraph()
    alone.add_node("n", kind="more", label="<i>")
    assert 'label="<i>"' in dot_text(alone)


def test_a_hostile_recording_makes_plain_dot() -> None:
    text = dot_text(overview_graph(evil(EVIL)))
    assert not any(char in text for char in "\x1b\x9b\u202e\ud800\r\x07\x00")


def test_a_graph_too_large_says_how_much_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot, "MAX_NODES", 3)
    made = node_graph([a_node(f"n{i}") for i in range(5)], "g")
    assert made.number_of_nodes() == 4
    assert made.nodes["..."]["label"] == "2 more nodes"


def test_dot_needs_no_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert render_graph(overview_graph(full()), "dot").startswith(b"digraph")


def test_without_graphviz_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DynadiagError, match="install Graphviz, or write DOT"):
        render_graph(overview_graph(full()), "svg")


def test_without_the_package_graphviz_the_cure_is_named_and_the_help_is_there(tmp_path: Path) -> None:
    code = "import sys; sys.modules['graphviz'] = None\nfrom dynadiag.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "graph"]
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert helped.returncode == 0, helped.stderr
    refused = subprocess.run([*command, str(recording(tmp_path / "a.dynadiag"))], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "pip install 'dynadiag[graph]'" in refused.stderr


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(DynadiagError, match="svg, png or pdf"):
        render_graph(overview_graph(full()), "xyz")


def _program(folder: Path, text: str) -> None:
    path = folder / "dot"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_pictures_are_drawn_by_the_dot_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, 'echo "$@"; exec cat')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    made = render_graph(overview_graph(full()), "svg")
    assert b"-Tsvg" in made
    assert b"digraph" in made


def test_a_dot_program_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, "exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(DynadiagError, match="could not draw"):
        render_graph(overview_graph(full()), "png")


def test_a_recording_without_graphs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = build.journal(tmp_path / "run.dynadiag", [*build.run_events(), *build.end_events(0)])
    assert main(["graph", "--nodes", "0", str(path)]) == 2
    assert "no graph 0; it has no graphs" in capsys.readouterr().err
