"""A job that does not end is put down to the rank that hangs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynadiag.trial.events import RankStarted
from dynadiag.trial.outcome import build_outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.rank_stacks import RankStack, ask_ranks, describe_stacks, hanging_rank
from dynadiag.trial.supervise import ProcessResult

_JOB = """
import sys
import torch
import torch.distributed as dist
from dynadiag.trial.rank_stacks import answer_with_stack

def load(rank):
    print(answer_with_stack(rank).stack, flush=True)
    while True:
        pass

def step(rank):
    if rank == 1:
        load(rank)
    x = torch.ones(2)
    print(answer_with_stack(rank).stack, flush=True)
    dist.all_reduce(x)

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
step(rank)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[RankStarted]]:
    """Two ranks, of which one never comes to the collective."""
    program = tmp_path / "train.py"
    program.write_text(_JOB)
    ranks = [
        subprocess.Popen([sys.executable, program, str(rank), tmp_path / "store"], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        yield [RankStarted(rank, each.pid, _stack_of(each)) for rank, each in enumerate(ranks)]
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


def _stack_of(rank: subprocess.Popen[str]) -> str:
    assert rank.stdout is not None
    return next(line.strip() for line in rank.stdout if line.startswith("/proc/"))  # gloo prints too


def test_the_rank_that_hangs_is_the_one_outside_the_collective(job: list[RankStarted]) -> None:
    while not ((stacks := ask_ranks(job))[0].waits and stacks[1].frames):
        continue  # on a busy machine a rank answers late
    found = hanging_rank(stacks)
    assert found is not None
    assert found.rank == 1
    assert found.place.endswith("in load")
    assert describe_stacks(stacks).startswith("when the time was over, rank 0 waited in a collective at train.py:")
    outcome = build_outcome(ProcessResult((), 5.0, "hang", stacks=stacks), -9, 7, Plan(), "")
    assert outcome.signature is not None
    assert (outcome.signature.kind, outcome.signature.rank) == ("hang", 1)
    assert outcome.notes == (describe_stacks(stacks),)


_WAITS = "/torch/distributed/distributed_c10d.py"
_BACKWARD = "/torch/autograd/graph.py"


def _stack(rank: int, file: str, *, busy: bool = False) -> RankStack:
    return RankStack(rank, ((file, 3, "f"), ("/train.py", 9, "step")), busy)


@pytest.mark.parametrize(
    ("stacks", "rank"),
    [
        ((_stack(0, _WAITS), _stack(1, _WAITS)), None),
        ((_stack(0, _BACKWARD), _stack(1, "/data.py", busy=True)), 1),
        ((_stack(0, _BACKWARD), _stack(1, "/data.py")), None),
        ((_stack(0, "/data.py"),), None),
    ],
)
def test_a_hang_that_no_rank_can_be_blamed_for(stacks: tuple[RankStack, ...], rank: int | None) -> None:
    found = hanging_rank(stacks)
    assert (found.rank if found else None) == rank


def test_a_rank_that_has_ended_is_left_out() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert ask_ranks([RankStarted(0, done.pid, f"/proc/{done.pid}/fd/9")]) == ()
