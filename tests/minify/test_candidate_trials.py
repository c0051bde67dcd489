"""Trials of a text, in a fork of the process that reduces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from dynadiag.minify.candidate_trials import draws_random

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = """
from dynadiag.minify.candidate_trials import CandidateTrials
from dynadiag.trial.plan import Plan
from dynadiag.trial.supervise import Limits

TEXT = '''
import torch
import triton
import triton.language as tl

@triton.jit
def halved(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) * 0.5)

assert "tl.store" in halved.src
'''
trials = CandidateTrials("inductor", Plan(), Limits.default(60), (), lambda: None, 1, accuracy=False, backward=False)
outcome = trials.run_text(TEXT)
assert outcome.passed, outcome.tail
"""


def test_a_text_has_a_source_for_those_who_read_it() -> None:
    """Triton takes the source of a kernel from its file."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


OUT_OF_BOUNDS = """
import torch
from dynadiag.minify.candidate_trials import CandidateTrials, CompileSettings
from dynadiag.trial import rungs
from dynadiag.trial.plan import Plan
from dynadiag.trial.supervise import Limits

def forgets_clamp(gm, inputs):
    for node in list(gm.graph.nodes):
        if node.target == "clamp":
            node.replace_all_uses_with(node.args[0])
    gm.recompile()
    return gm.forward

rungs.install()
limits = Limits.default(60)
trials = CandidateTrials(forgets_clamp, Plan("custom"), limits, (), lambda: None, 1, accuracy=False, backward=False)
whole = torch.fx.symbolic_trace(lambda x, i: x[i.clamp(max=3)])
part = torch.fx.symbolic_trace(lambda x, i: x[i])
for module in (whole, part):
    arguments = module, [torch.ones(4), torch.tensor([1, 7])], CompileSettings(())
    assert trials.run_graph(*arguments).signature.cause == "IndexError"
    assert trials.passes_uncompiled(*arguments) == (module is whole)
"""


def test_a_candidate_that_fails_uncompiled_too_is_recognized() -> None:
    run = subprocess.run([sys.executable, "-c", OUT_OF_BOUNDS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


AT_A_KERNEL = """
import torch
import torch._inductor.config as config
from dynadiag.minify import hooks
from dynadiag.minify.candidate_trials import CandidateTrials, CompileSettings
from dynadiag.minify.reduction_task import KERNEL_REACHED, PASSES_AT_KERNEL
from dynadiag.minify.suspects import reaches_kernel
from dynadiag.trial import rungs
from dynadiag.trial.plan import Plan
from dynadiag.trial.supervise import Limits

rungs.install()
hooks.install()
config.cpu_backend = "cpp"
config.cpp.cxx = ("no compiler",)
torch._inductor.lowering.lowerings[torch.ops.aten.sin.default] = None
graphs = [(torch.fx.symbolic_trace(f), [torch.ones(4)]) for f in (lambda x: x.cos() + 1, lambda x: x.sin().cos())]

def tried(*record):
    plan = Plan("inductor", record=record)
    trials = CandidateTrials("inductor", plan, Limits.default(120), (), lambda: None, 1, accuracy=False, backward=False)
    return trials.run_graphs(graphs, CompileSettings(()))

reaches, before = tried(KERNEL_REACHED)
assert reaches.signature is not None and before.signature is not None
assert reaches_kernel(reaches) and not reaches_kernel(before)
passes, fails = tried(PASSES_AT_KERNEL)
assert passes.passed, passes
assert fails.signature == before.signature, fails
"""


def test_a_candidate_passes_at_its_first_kernel_and_several_run_side_by_side() -> None:
    """Where a graph fails before it has a kernel, the C++ compiler has nothing to say about its parts."""
    run = subprocess.run([sys.executable, "-c", AT_A_KERNEL], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("function", "draws"),
    [(lambda x: x.relu(), False), (lambda x: torch.nn.functional.dropout(x), True), (lambda x: x.view(3, 5), True)],
    ids=["relu", "dropout", "raises"],
)
def test_only_a_graph_that_draws_random_numbers_asks_for_eagers(
    function: Callable[[torch.Tensor], torch.Tensor], *, draws: bool
) -> None:
    before = torch.get_rng_state()
    assert draws_random(torch.fx.symbolic_trace(function), [torch.ones(4)]) is draws
    assert torch.equal(before, torch.get_rng_state())
