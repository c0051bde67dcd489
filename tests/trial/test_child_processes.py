"""Compiles in child processes of a program are part of its trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.multiprocessing.spawn import ProcessExitedException

import dynadiag
from dynadiag.trial.events import RankEnded, RankFailed, RunFacts, TrialEnded
from dynadiag.trial.outcome import Decision, build_outcome
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.rank import killed_rank
from dynadiag.trial.runner import Runner
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import ProcessResult

pytestmark = pytest.mark.usefixtures("forked_interpreters")

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
        outcome = runner.run_fresh(Plan(rung="eager"))
    assert outcome.passed
    assert "<work.<locals>.backend>" in outcome.facts.backends


LAUNCHES = """
import os, subprocess, sys
import torch

worker = "import torch; torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)); raise ValueError('no batch')"
os.environ["RANK"] = "1"
done = subprocess.run([sys.executable, "-c", worker], start_new_session=True)
raise RuntimeError(f"rank 1 ended with {done.returncode}")
"""


@pytest.mark.parametrize("plan", [pytest.param(AS_WRITTEN, marks=pytest.mark.slow), Plan(rung="eager")])
def test_the_failure_of_a_launcher_is_that_of_its_rank(tmp_path: Path, plan: Plan) -> None:
    program = tmp_path / "program.py"
    program.write_text(LAUNCHES)
    with Runner(Program(str(program))) as runner:
        outcome = runner.run_fresh(plan)
    assert outcome.signature is not None
    assert (outcome.signature.type, outcome.signature.message, outcome.signature.rank) == ("ValueError", "no batch", 1)
    assert "eager" in outcome.facts.backends


SPAWNS_RANKS = """
import os
import torch
import torch.distributed as dist

def run(rank, port):
    store = dist.TCPStore("localhost", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    if rank == 1:
        raise ValueError("no batch")
    dist.barrier()

if __name__ == "__main__":
    store = dist.TCPStore("localhost", 0, is_master=True)
    torch.multiprocessing.start_processes(run, (store.port,), nprocs=2, start_method="METHOD")
"""


@pytest.mark.parametrize(
    ("method", "plan"),
    [
        pytest.param("spawn", AS_WRITTEN, marks=pytest.mark.slow),
        ("spawn", Plan(rung="eager")),
        pytest.param("fork", AS_WRITTEN, marks=pytest.mark.slow),
    ],
)
def test_the_failure_of_spawned_ranks_is_that_of_the_rank(method: str, plan: Plan, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SPAWNS_RANKS.replace("METHOD", method))
    with Runner(Program(str(program))) as runner:
        outcome = runner.run_fresh(plan)
    assert outcome.signature is not None
    assert (outcome.signature.type, outcome.signature.message, outcome.signature.rank) == ("ValueError", "no batch", 1)


def test_the_decisions_are_those_of_the_rank_that_fails() -> None:
    failed = Signature("exception", "ValueError", "no batch", rank=1)
    events = (
        Decision("lowering", "0/0 a", "a", rank=0),
        Decision("lowering", "0/0 b", "b", rank=1),
        RankFailed(failed, RunFacts(), witness=("b",)),
        RankFailed(replace(failed, message="connection closed", rank=0), RunFacts()),
        TrialEnded(Signature("exception", "ChildFailedError", "1 of 2"), RunFacts()),
    )
    outcome = build_outcome(ProcessResult(events, 1.0, None), 1, 5, Plan(), "")
    assert outcome.signature == failed
    assert (outcome.witness, [decision.name for decision in outcome.points]) == (("b",), ["b"])


def test_what_the_ranks_compiled_is_a_fact_of_a_job_that_passes() -> None:
    ranks = [RankEnded(RunFacts(backends=("inductor", "inductor")))] * 2
    events = (*ranks, TrialEnded(None, RunFacts()))
    outcome = build_outcome(ProcessResult(events, 1.0, None), 0, 5, Plan(), "")
    assert outcome.passed
    assert outcome.facts.backends == ("inductor",)


class _JobFailedError(Exception):
    def __init__(self, *codes: int) -> None:
        self.failures = {rank: SimpleNamespace(exitcode=code) for rank, code in enumerate(codes)}


@pytest.mark.parametrize(
    ("codes", "rank"), [((-signal.SIGTERM, -signal.SIGSEGV), 1), ((1, -signal.SIGTERM), None), ((), None)]
)
def test_the_rank_that_a_signal_ended(codes: tuple[int, ...], rank: int | None) -> None:
    failure = killed_rank(_JobFailedError(*codes))
    assert (failure and (failure.type, failure.rank)) == (None if rank is None else ("SIGSEGV", rank))


PREPARED = """
from dynadiag.bisection import bisector, compiler_hooks
from dynadiag.torch_private import trial
from dynadiag.trial import child_processes, rungs
from torch._dynamo import trace_rules

child_processes.install_hooks(bisector.HOOKS)
assert "lib.with.dots" in rungs.__file__
assert all(trace_rules.check_file(one.__file__).skipped for one in (rungs, compiler_hooks, trial))
"""


def test_a_spawned_rank_that_a_signal_ended() -> None:
    failure = killed_rank(ProcessExitedException("ended", 1, 5, -signal.SIGABRT, "SIGABRT"))
    assert failure is not None
    assert (failure.type, failure.rank) == ("SIGABRT", 1)


def test_dynamo_skips_our_functions_wherever_they_are_installed(tmp_path: Path) -> None:
    """A folder such as `.venv/lib/python3.12` has a dot, so it is no name of a module."""
    library = tmp_path / "lib.with.dots"
    library.mkdir()
    (library / "dynadiag").symlink_to(Path(dynadiag.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(library)}
    subprocess.run([sys.executable, "-P", "-c", PREPARED], env=environment, check=True, cwd=tmp_path)
