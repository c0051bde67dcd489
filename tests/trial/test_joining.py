"""Compiles in processes that a program starts are part of its trial."""

from __future__ import annotations

from pathlib import Path

from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner

SPAWNS = """
import multiprocessing, sys

def work():
    import torch
    def backend(gm, inputs):
        raise RuntimeError("no")
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))

if __name__ == "__main__":
    import torch
    worker = multiprocessing.get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""


def test_a_worker_compiles_at_the_rung_of_the_trial(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SPAWNS)
    with Runner(Program(str(program))) as runner:
        outcome = runner.fresh(Plan(rung="eager"))
    assert outcome.passed
    assert "<work.<locals>.backend>" in (outcome.facts or {})["backends"]
