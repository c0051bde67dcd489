"""What Dynamo had traced when a compile failed in it: the graph so far is recorded, and nothing is disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from tests.capture.runs import Bench, assert_undisturbed

pytestmark = pytest.mark.usefixtures("forked_interpreters")

# Each function fails once, and no tensor of a call outlives it.
PROGRAM = """
import gc, weakref
import torch
from torch.utils.checkpoint import checkpoint

def wrong_shape(x):
    y = x.sin()
    z = y + 1
    return z.view(3, -1, 7)

def block(y):
    z = y.cos()
    torch._dynamo.graph_break()
    return z

def in_checkpoint(x):
    y = x.relu()
    return checkpoint(block, y, use_reentrant=False)

def before_any(x):
    torch._dynamo.graph_break()
    return x.sin()

def in_backend(x):
    return x.tan()

def refuse(module, inputs):
    raise ValueError("no")

for function in (wrong_shape, in_checkpoint, before_any, in_backend):
    backend = refuse if function is in_backend else "eager"
    x = torch.randn(5, 4, requires_grad=True)
    gone = weakref.ref(x)
    try:
        torch.compile(function, fullgraph=True, backend=backend)(x)
    except Exception as error:
        print(function.__name__, type(error).__name__)
    del x
    gc.collect()
    print("freed", gone() is None)
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    bench = Bench(tmp_path_factory.mktemp("failed"), PROGRAM)
    run = assert_undisturbed(bench)
    assert run.out.count("freed True") == 4
    with open_recording(bench.out / "run.dynadiag") as opened:
        yield opened


def traced(recording: Recording, compile_id: str) -> list[tuple[str, list[str]]]:
    """The stage of each graph of a compile, and what its nodes call."""
    graphs = recording.graphs(compile_id)
    calls = [[node.target for node in recording.nodes(each.index) if node.op.startswith("call_")] for each in graphs]
    return [(graph.stage, call) for graph, call in zip(graphs, calls, strict=True)]


def test_the_nodes_up_to_the_one_that_fails_are_recorded_with_their_lines(recording: Recording) -> None:
    ((stage, calls),) = traced(recording, "0/0")
    assert stage == "failed_trace"
    assert calls[:2] == ["sin", "_operator.add"]  # torch 2.14 takes the one that failed out again
    graph, *_ = recording.graphs("0/0")
    assert [node.span.line for node in recording.nodes(graph.index)][1:3] == [6, 7]
    text = recording.payload(graph.event)
    assert 'y: "f32[5, 4][4, 1]cpu" = l_x_.sin()' in text
    assert "program.py:6 in wrong_shape, code: y = x.sin()" in text


def test_the_function_of_an_operator_has_a_graph_of_its_own(recording: Recording) -> None:
    assert traced(recording, "1/0") == [("failed_trace", ["relu"]), ("failed_trace", ["cos"])]


def test_a_graph_without_an_operation_is_none(recording: Recording) -> None:
    assert traced(recording, "2/0") == []


def test_a_graph_that_the_backend_was_given_is_recorded_once(recording: Recording) -> None:
    assert traced(recording, "3/0") == [("dynamo", ["tan"])]


def test_a_graph_that_dynamo_did_not_finish_is_not_counted(recording: Recording) -> None:
    assert len(recording.graphs_at("dynamo")) == 1


def test_without_source_the_graph_has_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path, PROGRAM)
    bench.recorded(options=("--no-source",))
    with open_recording(bench.out / "run.dynadiag") as recording:
        text = recording.payload(recording.graphs("0/0")[0].event)
    assert "program.py:6 in wrong_shape" in text
    assert "x.sin()" not in text.replace("l_x_.sin()", "")
