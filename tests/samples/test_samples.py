"""Each sample shows what it was written to show, in the output of the console script."""

from __future__ import annotations

import re

import pytest
import torch

import dynadiag
from tests.samples.running import SAMPLES, TORCH, Explained, explained, line_of, span_text


def sample(name: str) -> Explained:
    ran = explained(SAMPLES / f"{name}.py")
    assert ran.ended.code == 0, ran.ended.stderr
    assert ran.document["exit_code"] == 0
    return ran


def test_graph_breaks_tells_the_suspects_that_break_from_those_that_do_not() -> None:
    ran = sample("graph_breaks")
    told = dict(
        re.findall(r"^  line (\d+), .*: (breaks the graph \(GB\d+\)|does not break it)$", ran.ended.stdout, re.M)
    )
    assert len(told) == 4
    breaking = {int(line): text[-7:-1] for line, text in told.items() if text.startswith("breaks")}
    assert {item["line"]: item["gb_id"] for item in ran.roots} == breaking
    item = line_of(ran.path, "x.max().item()")
    assert {one["line"]: span_text(one) for one in ran.roots}[item] == "x.max().item()"
    assert ran.document["graph_count"] == len(breaking) + 1


@pytest.mark.skipif(TORCH != "2.13", reason="which of the four break is a fact of one torch")
def test_graph_breaks_on_this_torch() -> None:
    assert {span_text(item) for item in sample("graph_breaks").roots} == {"x.max().item()", "print(x)"}


def test_control_flow_breaks_at_the_branch_and_its_rewrites_are_whole() -> None:
    ran = sample("control_flow")
    (root,) = ran.roots
    assert (root["gb_id"], root["line"]) == ("GB0170", line_of(ran.path, "if x.sum() > 0:"))
    assert (span_text(root), root["function"]) == ("x.sum() > 0", "scale_if_positive")
    assert any("torch.where" in hint or "torch.cond" in hint for hint in root["hints"])
    assert ran.document["graph_count"] == 4  # before the branch, its true arm, and one for each rewrite
    for function in ("scale_with_where", "scale_with_cond"):
        assert len(ran.graphs(function)) == 1
        assert [one["outcome"] for one in ran.document["compiles"] if one["function"] == function] == ["ok"]


def test_guards_has_one_recompile_for_the_dtype_and_one_for_the_length_and_then_none() -> None:
    ran = sample("guards")
    dtype, length = ran.document["recompiles"]
    values = [[(item["source"], item["was"], item["now"]) for item in one["reasons"]] for one in (dtype, length)]
    assert values[0] == [("L['x'].dtype", "torch.float32", "torch.bfloat16")]
    assert ("L['x'].size()[0]", "8", "12") in values[1]
    assert all(item["line"] == line_of(ran.path, "return (x - x.mean())") for item in dtype["reasons"])
    assert any("mark_dynamic(x, 0)" in text for text in length["advice"])
    assert ran.document["graph_count"] == 3


def test_dynamic_shapes_counts_the_graphs_that_the_program_counted() -> None:
    ran = sample("dynamic_shapes")
    counted = {name: int(count) for name, count in re.findall(r"^(\w+): (\d+) graphs", ran.ended.stdout, re.M)}
    assert {name: len(ran.graphs(name)) for name in counted} == counted
    assert [item["limit_reached"] for item in ran.recompiles("static")] == [False] * 7 + [True]
    assert not ran.recompiles("dynamic")
    assert not ran.recompiles("marked")
    (automatic,) = ran.recompiles("by_itself")
    used = line_of(ran.path, "weights = self.score(x)")
    assert {(item["source"], item["was"], item["now"], item["line"]) for item in automatic["reasons"]} >= {
        ("L['x'].size()[1]", "5", "8", used)
    }


def test_cuda_graphs_are_lost_at_the_three_lines_that_the_cures_are_without() -> None:
    ran = sample("cuda_graphs")
    if not torch.cuda.is_available():
        assert ran.ended.stdout.startswith("CUDA graphs need an NVIDIA GPU")
        return
    lost = ("mean += (x.mean(0) - mean) * 0.1", "y = y + y[keep].sum(0)", "moving = compiler(")
    found = {item["line"] for item in ran.document["findings"] if item["rule"] == "cuda-graph"}
    assert found == {line_of(ran.path, text) for text in lost}
    count = {name: int(number) for name, number in re.findall(r"^(\w+): (\d+) launch", ran.ended.stdout, re.M)}
    names = list(count)
    assert all(count[cured] < count[before] for before, cured in zip(names[::2], names[1::2], strict=True))


def test_custom_backend_printed_the_graph_that_was_recorded() -> None:
    ran = sample("custom_backend")
    printed = re.findall(r"^  (placeholder|call_\w+|output) +(\S+) +(\S+)  .*$", ran.ended.stdout, re.M)
    with dynadiag.open(ran.recording) as recording:
        (graph,) = [item for item in recording.graphs() if item.stage == "dynamo"]
        nodes = recording.nodes(graph.index)
    assert [(node.op, node.name) for node in nodes] == [(op, name) for op, name, _ in printed]
    assert all(told in node.target for node, (_, _, told) in zip(nodes, printed, strict=True))
    assert graph.nodes == len(printed)
    computed = [node.span.line for node in nodes if node.op.startswith("call_")]
    assert set(computed) == {line_of(ran.path, "inner = "), line_of(ran.path, "torch.tanh(inner)")}


@pytest.mark.slow  # Inductor with a cold cache builds a C++ header first
def test_fused_ops_is_one_kernel() -> None:
    ran = sample("fused_ops")
    assert "eager: 3 launches; compiled: 1 kernel" in ran.ended.stdout
    assert len(ran.document["kernels"]) == 1
    assert [graph["ops"] for graph in ran.graphs("mix")] == [3]
    assert not ran.document["breaks"]


def test_kfold_regression_compiles_the_net_and_the_optimizer_and_leaves_the_loop_to_python() -> None:
    ran = sample("kfold_regression")
    assert "losses as without compiling" in ran.ended.stdout
    assert {item["function"] for item in ran.document["skipped_frames"]} == {"train_and_evaluate"}
    assert len(ran.graphs("Regression.forward", "forward")) == len(ran.graphs("Regression.forward", "backward")) == 2
    assert len(ran.graphs("Adam.step")) == 5  # one for each fold's optimizer
    each = 1 if torch.cuda.is_available() else 6  # parameters: on a GPU Adam takes all of them in one operation
    assert all(graph["ops"] > each * 10 for graph in ran.graphs("Adam.step"))
    resized = [item for one in ran.recompiles("Regression.forward") for item in one["reasons"]]
    assert ("L['x'].size()[0]", "82", "83") in {(item["source"], item["was"], item["now"]) for item in resized}
    assert all(one["reasons"] for one in ran.document["recompiles"])


def test_kfold_regression_blames_the_call_that_no_graph_can_hold() -> None:
    ran = sample("kfold_regression")
    (root,) = [item for item in ran.roots if item["gb_id"] == "GB0008"]
    assert (root["line"], span_text(root)) == (line_of(ran.path, "optimizer.zero_grad()"), "optimizer.zero_grad()")
    assert root["gb_type"] == "Attempted to inline function marked as skipped"
