"""What a trial reports about itself, however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner

pytestmark = pytest.mark.usefixtures("forked_interpreters")

WRONG = """
import torch
torch.set_num_threads(1)

def doubled(gm, inputs):
    return lambda *args: [2 * out for out in gm(*args)]

torch.compile(lambda x: x.sin(), backend=doubled)(torch.ones(4))
"""


def test_a_trial_that_a_comparison_ends_reports_the_same_facts(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WRONG)
    with Runner(Program(str(program)), ("dynadiag.bisection.compiler_hooks",)) as runner:
        outcome = runner.run_fresh(Plan(accuracy=True))
    assert outcome.signature is not None
    assert outcome.signature.kind == "wrong_result"
    assert (outcome.facts.torch, outcome.facts.threads) == (torch.__version__, 1)
    assert outcome.facts.cuda is False
    assert "<doubled>" in outcome.facts.backends
