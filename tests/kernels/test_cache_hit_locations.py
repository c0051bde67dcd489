"""Lines of a graph from torch's cache, where another program put it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.kernels.graph_parser import PrintedGraph, SourceLine, parse_graph
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.kernels.source_lines import CompileContext, locate_cache_hit
from dynadiag.recording.opening import open_recording

pytestmark = pytest.mark.usefixtures("forked_interpreters")

_GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 4]", arg1_1: "f32[4, 4]"):
        # File: theirs.py:3 in first, code: y = torch.relu(x @ w).sin()
        mm: "f32[4, 4]" = torch.ops.aten.mm.default(arg0_1, arg1_1)
        relu: "f32[4, 4]" = torch.ops.aten.relu.default(mm)
        sin: "f32[4, 4]" = torch.ops.aten.sin.default(relu)

        # File: theirs.py:4 in first, code: return torch.nn.functional.gelu(y)
        mul: "f32[4, 4]" = torch.ops.aten.mul.Tensor(sin, 0.5)
        erf: "f32[4, 4]" = torch.ops.aten.erf.default(mul)
        return (erf,)
"""
_DYNAMO = """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 4]", L_w_: "f32[4, 4]"):
        # File: ours.py:13 in second, code: a = x @ w
        matmul: "f32[4, 4]" = l_x_ @ l_w_

        # File: ours.py:14 in second, code: y = torch.relu(a).sin()
        relu: "f32[4, 4]" = torch.relu(matmul)
        sin: "f32[4, 4]" = relu.sin()

        # File: ours.py:16 in second, code: return torch.nn.functional.gelu(y)
        gelu: "f32[4, 4]" = torch.nn.functional.gelu(sin)
        return (gelu,)
"""
_PROGRAM = """
import torch
{above}
def f(x):
    y = x.sin() * 2
    return y.relu() + 1

torch.compile(f)(torch.ones(64))
"""


def _lines(graph: PrintedGraph) -> dict[str, int | None]:
    return {
        name: node.source_line.line if node.source_line else None for name, node in graph.nodes.items() if node.target
    }


def test_matched_nodes_have_this_runs_lines_and_what_has_no_match_has_none() -> None:
    found = locate_cache_hit(parse_graph(_GRAPH), CompileContext(parse_graph(_DYNAMO), from_cache=True))
    lines = _lines(found)
    assert (lines["relu"], lines["sin"]) == (14, 14)
    assert (lines["mul"], lines["erf"]) == (None, None)
    assert {node.source_line.file for node in found.nodes.values() if node.source_line} == {"ours.py"}


def test_this_runs_own_graph_stays() -> None:
    dynamo = parse_graph(_DYNAMO)
    assert locate_cache_hit(dynamo, CompileContext(dynamo, from_cache=True)) is dynamo
    assert locate_cache_hit(dynamo, CompileContext(from_cache=True)) is dynamo


def test_a_backward_graph_has_its_forwards_lines() -> None:
    backward = parse_graph(_GRAPH)
    around = CompileContext(parse_graph(_DYNAMO), forward=parse_graph(_GRAPH), from_cache=True)
    found = locate_cache_hit(backward, around)
    assert found.nodes["erf"].source_line is None  # nothing of that line was matched
    assert found.nodes["sin"].source_line == SourceLine("ours.py", 14)


def test_the_second_program_of_two_with_one_cache_has_its_own_lines(tmp_path: Path) -> None:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    for name, above in (("theirs", ""), ("ours", "# moved\n" * 5)):
        (tmp_path / f"{name}.py").write_text(_PROGRAM.format(above=above))
        words = ["explain", "-o", f"{name}.dynadiag", f"{name}.py"]
        run = [sys.executable, "-m", "dynadiag", *words]
        subprocess.run(run, cwd=tmp_path, env=environment, check=True, capture_output=True)
    words = ["kernels", "--json", "-", "ours.dynadiag"]
    run = [sys.executable, "-m", "dynadiag", *words]
    done = subprocess.run(run, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["cache"] == "hit"
    assert [(Path(line["file"]).name, line["line"]) for line in kernel["lines"]] == [("ours.py", 10), ("ours.py", 11)]
    with open_recording(tmp_path / "ours.dynadiag") as recording:
        nodes = [node for unit in generated_modules(recording) for node in unit.graph.nodes.values()]
        sources = {node.source_line.file for node in nodes if node.source_line}
    assert {Path(name).name for name in sources} == {"ours.py"}
