"""The triton rung without a GPU: what it finds, and when it says that it was not run."""

from __future__ import annotations

import pytest

from dynadiag.bisection.ladder import not_run_reason, rungs_to_try
from dynadiag.trial.events import RunFacts
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature
from tests.bisection.conftest import Bisected

CHECKED = "torch.testing.assert_close(torch.compile(f)(x), f(x))\n"
INJECTED = """
import torch
torch._inductor.config.triton.inject_relu_bug_TESTING_ONLY = "{kind}"

def f(x):
    y = x.sin()
    z = y.relu()
    return z * 2

x = torch.ones(8, 8)
"""
LIBRARY_ONLY = "import torch\nx = torch.ones(8, 8)\nprint(torch.compile(lambda a: a @ a)(x))\n"
PASS = """
import torch
from torch._inductor import config

def negates(graph):
    if config.cpu_backend == "triton":
        for node in graph.nodes:
            if node.target is torch.ops.aten.sin.default:
                node.target = torch.ops.aten.cos.default

config.post_grad_custom_post_pass = negates

def f(x):
    return x.sin() + 1

x = torch.ones(8, 8)
"""
FUSION = """
import torch
from torch._inductor.codegen.triton import TritonScheduling

inner = TritonScheduling.codegen_node_schedule

def wrong(self, schedule):
    if len(schedule.get_nodes() if hasattr(schedule, "get_nodes") else schedule.node_schedule) > 1:
        raise RuntimeError("no two together")
    return inner(self, schedule)

TritonScheduling.codegen_node_schedule = wrong

def f(x):
    y = x.sum(1, keepdim=True)
    return x / y

x = torch.ones(8, 8)
"""


def _outcome(backends: tuple[str, ...] = (), launches: tuple[str, ...] = ()) -> Outcome:
    return Outcome(None, 1.0, facts=RunFacts(backends=backends, launches=launches))


def test_a_trial_without_a_launch_does_not_count_for_triton() -> None:
    assert not_run_reason(_outcome(("inductor",), ("triton_poi_fused_0",))) is None
    assert "libraries only" in (not_run_reason(_outcome(("inductor",))) or "")
    assert "go to aot_eager" in (not_run_reason(_outcome(("aot_eager",))) or "")
    assert "nothing was compiled" in (not_run_reason(_outcome()) or "")
    assert not_run_reason(Outcome(Signature("exit", "1", "exit code 1"), 1.0)) is None, "a failure needs no launch"


def test_the_ladder_has_the_rung_only_where_it_is_asked_for() -> None:
    assert "triton" not in rungs_to_try("custom", None)
    assert rungs_to_try("inductor", ("uncompiled", "triton")) == ("uncompiled", "triton")


@pytest.mark.slow
def test_a_fault_of_the_code_generator_alone_is_found_in_a_program_that_passes_as_it_is(bisected: Bisected) -> None:
    verdict = bisected(INJECTED.format(kind="accuracy") + CHECKED, rungs=("uncompiled", "aot_eager", "triton"))
    assert (verdict.verdict, verdict.rung) == ("found", "triton")
    assert verdict.rungs["uncompiled"] == verdict.rungs["aot_eager"] == "pass"
    assert verdict.rungs["inductor"] == "not_run"
    assert [(c.group, c.name, c.lines[0][1]) for c in verdict.culprits] == [("lowering", "relu", 7)]
    assert len(verdict.confirmed) == 2
    assert any("as it is written it passes" in note for note in verdict.notes)


@pytest.mark.slow
def test_a_graph_of_library_calls_was_not_at_the_rung(bisected: Bisected) -> None:
    verdict = bisected(LIBRARY_ONLY, rungs=("uncompiled", "triton"))
    assert (verdict.verdict, verdict.rungs["triton"]) == ("passes", "not_run")
    assert any("libraries only" in note for note in verdict.notes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compile_error", "runtime_error"])
def test_a_kernel_that_does_not_compile_or_stops(bisected: Bisected, kind: str) -> None:
    source = INJECTED.format(kind=kind) + "torch.compile(f)(x)\n"
    verdict = bisected(source, rungs=("uncompiled", "triton"))
    assert (verdict.verdict, verdict.rung) == ("found", "triton")
    assert verdict.failure is not None
    assert verdict.failure.kind == "exception"
    assert ("injected assert fail" in verdict.failure.message) == (kind == "runtime_error")
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "relu")]


@pytest.mark.slow
def test_a_wrong_result_is_found_without_the_programs_own_comparison(bisected: Bisected) -> None:
    verdict = bisected(
        INJECTED.format(kind="accuracy") + "torch.compile(f)(x)\n", rungs=("uncompiled", "triton"), accuracy=True
    )
    assert verdict.failure is not None
    assert (verdict.verdict, verdict.rung, verdict.failure.kind) == ("found", "triton", "wrong_result")
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "relu")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "group", "name"), [(PASS + CHECKED, "pass", "negates"), (FUSION + CHECKED, "fusion", "sum_1+div")]
)
def test_a_wrong_pass_and_a_fusion_that_raises(bisected: Bisected, source: str, group: str, name: str) -> None:
    verdict = bisected(source, rungs=("uncompiled", "inductor", "triton"))
    assert (verdict.verdict, verdict.rung) == ("found", "triton")
    assert [(c.group, c.name) for c in verdict.culprits] == [(group, name)]


@pytest.mark.slow
def test_a_kernel_in_the_interpreter_passes(bisected: Bisected) -> None:
    source = INJECTED.format(kind="accuracy").replace("torch._inductor", "# torch._inductor") + CHECKED
    verdict = bisected(source, rungs=("uncompiled", "triton"))
    assert (verdict.verdict, verdict.rungs["triton"]) == ("passes", "pass")


@pytest.mark.slow
@pytest.mark.parametrize(("also", "status"), [("", "pass"), ("config.triton.inject_relu_bug_TESTING_ONLY = ", "same")])
def test_a_failure_at_inductor_is_told_from_one_of_the_cpp_code_generator_alone(
    bisected: Bisected, also: str, status: str
) -> None:
    source = INJECTED.format(kind="accuracy").replace(
        "torch._inductor.config.triton.", f"from torch._inductor import config\n{also}config.cpp."
    )
    verdict = bisected(source + CHECKED, rungs=("uncompiled", "inductor", "triton"))
    assert (verdict.verdict, verdict.rung, verdict.rungs["triton"]) == ("found", "inductor", status)
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "relu")]
