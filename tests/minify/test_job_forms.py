"""Repros of failing jobs: one process with a fake process group, or a script that starts its ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dynadiag.minify.job_forms import JobForm, forms_of_job
from dynadiag.trial.events import LaunchedJob
from dynadiag.trial.program import Program

RANK_PROGRAM = """
from __future__ import annotations
import os
import torch
import torch.distributed as dist
SIZES = [4, 8]

def ones(count):
    return torch.ones(count)

place = int(os.environ["RANK"])

class Sum:
    def of(self, x):
        dist.all_reduce(x)
        return x

if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = Sum().of(ones(SIZES[0]) * (place + 1))
    os.write(1, f"{place} of {dist.get_world_size()}: {found[0].item():.0f}\\n".encode())
"""


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        (JobForm(2, fake_rank=1), ["1 of 2: 2"]),
        pytest.param(JobForm(2), ["0 of 2: 3", "1 of 2: 3"], marks=pytest.mark.slow),
    ],
)
def test_the_program_of_a_rank_runs_without_its_launcher(form: JobForm, printed: list[str], tmp_path: Path) -> None:
    file = tmp_path / "repro.py"
    for text in dict.fromkeys([form.file(RANK_PROGRAM), form.file(RANK_PROGRAM, forked=True)]):
        file.write_text(text)
        done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
        assert sorted(done.stdout.splitlines()) == printed, done.stderr


def test_definitions_stay_outside_of_the_function_that_is_a_rank() -> None:
    before, _, inside = JobForm(2).file(RANK_PROGRAM).partition("def run_rank(")
    assert "def ones(" in before
    assert "SIZES" in before
    assert "global Sum, found, place" in inside
    assert "torch.multiprocessing.spawn(run_rank, (port,), nprocs=2)" in inside


def test_the_simplest_form_is_tried_first() -> None:
    job = LaunchedJob(Program("train.py"), 4)
    assert list(forms_of_job(job, 3)) == [JobForm(4, fake_rank=3), JobForm(2), JobForm(4)]


RAISES_AT_A_COLLECTIVE = """
import os
import torch
import torch.distributed as dist
import torch._inductor.config

def refuse(graph):
    if any("all_reduce" in str(node.target) for node in graph.nodes):
        raise NotImplementedError("a collective")

torch._inductor.config.post_grad_custom_post_pass = refuse
dist.init_process_group("gloo")

@torch.compile
def mean(x):
    total = x.sin()
    dist.all_reduce(total)
    return total / 2

mean(torch.ones(8) * int(os.environ["RANK"]))
"""


def minified(text: str, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    (folder / "train.py").write_text(text)
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]
    command = [sys.executable, "-m", "dynadiag", "minify", "-o", "repro.py", "--json", "result.json", *options, "--"]
    done = subprocess.run([*command, *torchrun], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "result.json").read_text()), (folder / "repro.py").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_graph_with_a_collective_fails_in_one_process(tmp_path: Path) -> None:
    found, repro = minified(RAISES_AT_A_COLLECTIVE, tmp_path)
    assert (found["level"], found["rung"], found["proved"]) == ("graph", "inductor", True)
    assert 'init_process_group("fake"' in repro
    assert "all_reduce" in repro
    assert "multiprocessing" not in repro


# Each rank votes, so only with two ranks there is more than one vote. What fails then needs no rank at all.
VOTES = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
votes = torch.ones(1)
dist.all_reduce(votes)

@torch.compile(backend="eager", fullgraph=True)
def step(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()

if votes.item() > 1:
    step(torch.ones(4))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_needs_no_other_rank_once_it_is_reduced_is_one_process(tmp_path: Path) -> None:
    found, repro = minified(VOTES, tmp_path)
    assert (found["level"], found["rung"], found["proved"]) == ("source", "eager", True)
    assert "multiprocessing" not in repro
    assert "graph_break" in repro
    assert "votes" not in repro


# Inductor joins the two collectives of rank 1 in one, and of rank 0 it cannot: the sizes do not fit. With a fake
# process group nothing fails.
DIVERGES = """
import os
import torch
import torch.distributed as dist
import torch._inductor.config

torch._inductor.config.bucket_all_reduces_fx = "all"
dist.init_process_group("gloo")
rank = int(os.environ["RANK"])

@torch.compile
def means(x):
    first = x.sin().mean(0)
    dist.all_reduce(first)
    if rank == 0:
        torch._dynamo.graph_break()
    second = x.cos().mean(0)
    dist.all_reduce(second)
    return first, second

means(torch.randn(32, 16))
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ranks_that_differ_fail_as_two_processes(tmp_path: Path) -> None:
    found, repro = minified(DIVERGES, tmp_path, "--source", "--rungs", "uncompiled,inductor")
    assert (found["level"], found["rung"], found["proved"]) == ("source", "inductor", True)
    assert "torch.multiprocessing.spawn(run_rank, (port,), nprocs=2)" in repro
    assert found["tokens_after"] < found["tokens_before"]
