"""Real jobs of two gloo ranks, of which rank 1 has a machine that misbehaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.job.comparison import find_divergence
from dynadiag.job.processes import Job, open_job
from dynadiag.job.waits import measure_waits

pytestmark = pytest.mark.slow

TRAIN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")

@torch.compile(backend="aot_eager")
def loss(x):
    return x.sin().sum()

def work(step):
    pass
WORK
for step in range(6):
    total = loss(torch.ones(4) * step)
    work(step)
    dist.all_reduce(total)
    os.write(1, f"rank {rank} step {step} {total.item():.4f}\\n".encode())
dist.destroy_process_group()
"""
RANK = "import os, socket, time\nrank = int(os.environ['RANK'])\nif rank == 1:\n"
RAISES = """
def work(step):
    if rank == 1 and step == 3:
        raise ValueError("shard 17 is empty")
"""
KILLED = """
import signal
def work(step):
    if rank == 1 and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    elif step == 3:
        time.sleep(600)  # so it cannot see that the other one is gone: torchrun ends it
"""
# The process may write 60,000 bytes to a file. A recording takes more.
FULL = "    import resource\n    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
# Each write to the recording is delayed, as on a slow network share.
SLOW = """
    write = os.write
    def slow_write(file, data):
        if os.readlink(f"/proc/self/fd/{file}").endswith(".dynadiag"):
            time.sleep(0.02)
        return write(file, data)
    os.write = slow_write
"""
AHEAD = """
    clock, clock_ns = time.time, time.time_ns
    time.time, time.time_ns = lambda: clock() + 3600, lambda: clock_ns() + 3600 * 10**9
    socket.gethostname = lambda: "ahead"
"""


def recorded(folder: Path, before: str, work: str = "") -> tuple[Job, list[str]]:
    """The recordings of the job, and what it printed."""
    (folder / "train.py").write_text(RANK + (before or "    pass\n") + TRAIN.replace("WORK", work))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    record = [sys.executable, "-m", "dynadiag", "record", "-o", "job/", "--", *torchrun]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(record, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    printed = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    return open_job(sorted((folder / "job").glob("*.dynadiag"))), printed


@pytest.mark.parametrize("before", [FULL, SLOW], ids=["full disk", "slow share"])
def test_a_rank_whose_recording_is_hard_to_write(before: str, tmp_path: Path) -> None:
    job, printed = recorded(tmp_path, before)
    assert len(printed) == 12
    assert find_divergence(job) is None
    complete = [each.complete for each in job.ranks]
    assert complete == [True, before is SLOW]


def test_a_rank_that_is_killed_while_the_other_one_is_busy(tmp_path: Path) -> None:
    job, _ = recorded(tmp_path, "", KILLED)
    assert not any(each.complete for each in job.ranks)
    found = find_divergence(job)
    assert found is not None
    assert (found.kind, found.ranks) == ("died", (1,))
    assert "ended by signal 9" in found.text


def test_a_rank_that_raises_and_whose_clock_is_an_hour_ahead(tmp_path: Path) -> None:
    job, _ = recorded(tmp_path, AHEAD, RAISES)
    assert [each.host for each in job.ranks][1] == "ahead"
    began = [each.started or 0.0 for each in job.ranks]
    assert began[1] - began[0] > 3000
    found = find_divergence(job)
    assert found is not None
    assert (found.kind, found.ranks) == ("died", (1,))
    assert "shard 17 is empty" in found.text
    waits = measure_waits(job.ranks).values()
    assert all(max(each.waited, each.imposed) < 600 for each in waits)
