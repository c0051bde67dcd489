"""The suspects that a failure names are tried first: one trial instead of a bisection."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.minify.reduction_task import LOWERING_STARTED
from dynadiag.minify.suspects import nodes_to_try, outcome_to_keep
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.signature import Signature
from dynadiag.trial.typed_json import dump, load
from tests.minify.test_command import minify

PROGRAM = """
import torch
import torch._inductor.config

torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "{kind}"
torch.manual_seed(0)
layers = [m for _ in range(6) for m in (torch.nn.Linear(8, 8), torch.nn.Tanh())]
net = torch.nn.Sequential(*layers[:7], torch.nn.ReLU(), *layers[7:])
x = torch.randn(4, 8)
with torch.no_grad():
    torch.testing.assert_close(torch.compile(net)(x), net(x))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compile_error", "accuracy"])
def test_the_kernel_at_fault_is_tried_before_all_else(tmp_path: Path, kind: str) -> None:
    """The suspect comes from the kernel that the C++ compiler rejected, or from the first diverging values."""
    code, repro, data, told = minify(tmp_path, PROGRAM.format(kind=kind))
    assert code == 0, told
    assert (data["nodes_after"], data["proved"], data["minimal"]) == (1, True, True)
    assert "relu(" in repro.read_text()
    assert "witness: 1 operation," in told
    assert "prefix:" not in told  # nothing was halved


@pytest.mark.parametrize(("kind", "suspects"), [("hang", [["relu"]]), ("exception", [])])
def test_of_what_kills_its_process_the_operator_that_was_being_lowered(kind: str, suspects: list[list[str]]) -> None:
    begun = tuple(
        Decision(LOWERING_STARTED, node, " ".join(names)) for node, names in (("sin", ["sin"]), ("relu_1", ["relu"]))
    )
    outcome = Outcome(Signature(kind, kind, ""), 1.0, points=begun)
    assert nodes_to_try(outcome) == suspects
    assert nodes_to_try(load(dump(outcome_to_keep(outcome)), Outcome)) == suspects  # by a search that is taken up again
